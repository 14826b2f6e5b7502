"""The artifacts' files in the browser: read-only, only committed artifacts, only for users who may see Dags."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi import Path as UrlPart
from fastapi.responses import FileResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from include.artifacts import MANIFEST, ArtifactStore
from spark_bert.places import home

PREFIX = "/spark-bert"
#: Reports hold text from the data: no script of theirs ever runs, and nothing is fetched from elsewhere.
_HEADERS = {
    "Content-Security-Policy": "sandbox allow-same-origin allow-popups; default-src 'none'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-cache",
}
_bearer = HTTPBearer(auto_error=False)


async def may_read(request: Request, token: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
    """Refuse whoever is not logged in (401) or may not see Dags (403). Airflow checks no plugin's routes itself."""
    # Late, because every Airflow process loads the plugin and only the API server has these at hand.
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.core_api.security import get_user

    user = await get_user(request, None, token)
    if not get_auth_manager().is_authorized_dag(method="GET", user=user):
        raise HTTPException(403, "you may not see Dags, nor what they made")


app = FastAPI(dependencies=[Depends(may_read)], docs_url=None, redoc_url=None, openapi_url=None)


@app.api_route("/artifacts/{stage}/{key}/{file:path}", methods=["GET", "HEAD"])
def artifact_file(
    stage: Annotated[str, UrlPart(pattern="^[a-z]+$")],
    key: Annotated[str, UrlPart(pattern="^[0-9a-f]{16}$")],
    file: str,
) -> FileResponse:
    """One file of a committed artifact; 404 for whatever its manifest does not list."""
    path = ArtifactStore(home()).path(stage, key) / file
    if file not in _committed(stage, key) or not path.resolve().is_relative_to(home().resolve()):
        raise HTTPException(404, f"the artifact {stage}/{key} has no file {file}")
    return FileResponse(path, headers=_HEADERS)


def _committed(stage: str, key: str) -> set[str]:
    manifest = ArtifactStore(home()).path(stage, key) / MANIFEST
    return set(json.loads(manifest.read_bytes())["files"]) if manifest.is_file() else set()
