"""The service over HTTP: a model that labels texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response, Security
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from include.artifacts import revision
from tasks.serving import inference_protocol, query
from tasks.serving.answering import BODIES, Answering, refused
from tasks.serving.examples import INFER, INFER_RESPONSES, QUERY, QUERY_RESPONSES
from tasks.serving.refusal import Refusal
from tasks.serving.service import Service
from tasks.serving.shares import Shares

#: The paths of requests for labels.
_QUERY = "/query"
#: The extensions of the protocol, as Triton calls them.
EXTENSIONS = ["binary_tensor_data", "model_configuration", "statistics"]
_INFER = re.compile("/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")


@dataclass(frozen=True)
class Application:
    """The ASGI application: requests for labels are answered at once, and FastAPI routes all others.

    FastAPI takes nearly as long to call a function as everything else that a refusal takes, and under overload the
    model lacks this time.

    Attributes:
        answering: answers requests for labels.
        others: answers all other requests.
    """

    answering: Answering
    others: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        method = scope.get("method", "")
        path = scope["path"] if method == "POST" else ""
        if path == _QUERY:
            await self.answering.respond(Request(scope, receive), send, query.read)
        elif found := _INFER.fullmatch(path):
            await self.answering.respond(Request(scope, receive), send, inference_protocol.read, *found.groups(""))
        else:
            # The server leaves out the body of the answer to a HEAD.
            await self.others({**scope, "method": "GET"} if method == "HEAD" else scope, receive, send)


def build(service: Service, token: str = "") -> Application:
    """Return the application.

    Args:
        service: what answers.
        token: the bearer token that requests for answers must have; "" for none.
    """
    app = _described()
    _describe_answers(app, token)
    _answer_others(app, service)
    return Application(Answering(service, token, Shares(BODIES * service.serving.max_bytes)), app)


def _described() -> FastAPI:
    # A plain FastAPI's page of documentation loads its scripts from another server.
    return FastAPIOffline(
        title="Spark-BERT",
        description="Labels texts with a fine-tuned encoder.",
        version=revision(),
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_parameters={"defaultModelsExpandDepth": -1},  # no list of schemas below the requests
    )


def _describe_answers(app: FastAPI, token: str) -> None:
    """Describe requests for labels. These functions are never called, but other methods of the paths are refused."""
    needs: dict[str, Any] = {"tags": ["Labels"], "dependencies": [Security(HTTPBearer())] if token else []}

    @app.post(_QUERY, summary="Label texts", openapi_extra=QUERY, responses=QUERY_RESPONSES, **needs)
    async def answer_query() -> None:
        raise NotImplementedError

    @app.post(
        "/v2/models/{name}/infer",
        summary="Label texts (Open Inference Protocol)",
        openapi_extra=INFER,
        responses=INFER_RESPONSES,
        **needs,
    )
    @app.post("/v2/models/{name}/versions/{version}/infer", include_in_schema=False)
    async def infer(name: str) -> None:
        raise NotImplementedError


def _answer_others(app: FastAPI, service: Service) -> None:
    """Add all other requests."""
    model: dict[str, Any] = {"tags": ["Model"]}
    health: dict[str, Any] = {"tags": ["Health"]}

    @app.get("/v2", summary="What this server is", **health)
    async def server() -> dict[str, Any]:
        return {"name": "spark-bert", "version": app.version, "extensions": EXTENSIONS}

    @app.get("/v2/health/live", summary="Whether the process is well", **health)
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready", summary="Whether it can answer", **health)
    @app.get("/v2/models/{name}/ready", summary="Whether this model answers", **model)
    @app.get("/v2/models/{name}/versions/{version}/ready", include_in_schema=False)
    async def ready(name: str = "", version: str = "") -> dict[str, bool]:
        service.lane(name=name, version=version)
        return {"ready": True}

    @app.get("/v2/models/{name}", summary="The inputs and outputs of the model", **model)
    @app.get("/v2/models/{name}/versions/{version}", include_in_schema=False)
    async def metadata(name: str, version: str = "") -> dict[str, Any]:
        return inference_protocol.metadata(service.lane(name=name, version=version).model)

    @app.get("/v2/models/{name}/config", summary="The configuration of the model, as Triton has it", **model)
    @app.get("/v2/models/{name}/versions/{version}/config", include_in_schema=False)
    async def config(name: str, version: str = "") -> dict[str, Any]:
        return inference_protocol.config(service.lane(name=name, version=version).model)

    @app.get("/v2/models/{name}/stats", summary="How many requests the model has computed", **model)
    @app.get("/v2/models/{name}/versions/{version}/stats", include_in_schema=False)
    async def stats(name: str, version: str = "") -> dict[str, Any]:
        found = service.lane(name=name, version=version).model
        counted = {"success": service.metrics.success(found.version)}
        return {"model_stats": [{"name": found.name, "version": found.version, "inference_stats": counted}]}

    @app.get("/metrics", summary="Metrics for Prometheus", **health)
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(Refusal)
    async def refuse(request: Request, refusal: Refusal) -> Response:
        return refused(refusal)

    @app.exception_handler(HTTPException)
    async def explain(request: Request, error: HTTPException) -> Response:
        """Say in the service's own form what the framework refuses: another path or method."""
        return JSONResponse({"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code)
