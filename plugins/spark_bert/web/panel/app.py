"""The web app of the panel: its pages, the routes that they ask, and where Airflow's page shows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from pydantic_core import to_json
from starlette.exceptions import HTTPException as AnyHTTPException

from spark_bert.web.access import current_user
from spark_bert.web.links import PANEL, base_path
from spark_bert.web.panel import (
    champions,
    compare,
    datasets,
    evaluation,
    leaderboards,
    run_page,
    searches,
    table,
    trace,
)

#: Each page's title, by its name. The page NAME is the module static/NAME.js.
PAGES = {
    "runs": "Runs", "run": "Run", "rows": "Rows", "compare": "Compare", "models": "Models", "data": "Data",
    "searches": "Searches", "search": "Search",
}  # fmt: skip
#: The function that answers each route below api/, by its name. All only read.
ROUTES: dict[str, Callable[..., dict[str, Any]]] = {
    "runs": table.select_runs,
    "run": run_page.describe,
    "curves": run_page.read_curves,
    "trace": trace.read_trace,
    "evaluation": evaluation.read_evaluation,
    "rows": evaluation.select_rows,
    "models": champions.describe,
    "leaderboards": leaderboards.describe,
    "searches": searches.list_searches,
    "search": searches.describe,
    "data": datasets.describe,
    "compare": compare.compare,
    "compared-rows": compare.select_rows,
}
STATIC = Path(__file__).parent / "static"
#: Nothing is loaded from elsewhere, and no script or style may stand in a page, wherever the text of a page comes from.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
_BASE = f"{base_path()}{PANEL}"
_RUN = f"{_BASE}/run?dag_id={{DAG_ID}}&run_id={{RUN_ID}}"
#: The panel in Airflow's navigation, and as a tab of runs and of tasks. Airflow replaces what is in braces. Every view
#: needs a route of its own.
VIEWS: list[dict[str, Any]] = [
    {
        "name": "Quality",
        "href": f"{_BASE}/runs",
        "destination": "nav",
        "nav_top_level": True,
        "url_route": "quality",
        "icon": f"{_BASE}/static/icon.svg",
        "icon_dark_mode": f"{_BASE}/static/icon-dark.svg",
    },
    {"name": "Quality", "href": _RUN, "destination": "dag_run", "url_route": "quality-run"},
    {
        "name": "Quality",
        "href": f"{_RUN}&map_index={{MAP_INDEX}}",
        "destination": "task_instance",
        "url_route": "quality-task",
    },
]
#: The card on the dashboard. Airflow loads it as a module of its own page.
CARDS: list[dict[str, Any]] = [
    {
        "name": "SparkBertQuality",
        "bundle_url": f"{_BASE}/static/card.js",
        "destination": "dashboard",
        "url_route": "quality-card",
    }
]


class _Finite(JSONResponse):
    def render(self, content: Any) -> bytes:
        return to_json(content, inf_nan_mode="null")  # stages may write infinite numbers and NaN


app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
app.mount("/static", StaticFiles(directory=STATIC), name="static")
for _route, _answer in ROUTES.items():
    app.get(f"/api/{_route}", response_class=_Finite)(_answer)


@app.middleware("http")
async def add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Add the headers that keep pages to themselves."""
    answer = await call_next(request)
    answer.headers.update(_HEADERS)
    return answer


@app.exception_handler(AnyHTTPException)
async def explain(request: Request, error: AnyHTTPException) -> Response:
    """Answer with a page where a page was asked for, which says what to do if the login has ended."""
    from fastapi.exception_handlers import http_exception_handler

    if error.status_code in (401, 403) and not request.url.path.rpartition("/quality/")[2].startswith("api/"):
        return FileResponse(STATIC / "login.html", error.status_code)
    return await http_exception_handler(request, error)


@app.get("/", dependencies=[Depends(current_user)])
def start() -> Response:
    """Lead to the table of runs."""
    return RedirectResponse("runs")


@app.get("/{page}", dependencies=[Depends(current_user)])
def page(page: str) -> HTMLResponse:
    """Send a page. It contains no data: its script fetches what it shows."""
    if page not in PAGES:
        raise HTTPException(404, f"There is no page {page} here: the pages are {', '.join(PAGES)}.")
    return HTMLResponse((STATIC / "page.html").read_text(encoding="utf-8").format(name=page, title=PAGES[page]))
