"""The service over HTTP: a model that labels texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from tasks.serving import inference_protocol, query
from tasks.serving.answering import Answering, refused
from tasks.serving.examples import INFER, QUERY
from tasks.serving.refusal import Refusal
from tasks.serving.service import Service

#: The paths of requests for labels.
_QUERY = "/query"
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
        path = scope["path"] if scope["type"] == "http" and scope["method"] == "POST" else ""
        if path == _QUERY:
            await self.answering.respond(Request(scope, receive), send, query.read)
        elif found := _INFER.fullmatch(path):
            await self.answering.respond(Request(scope, receive), send, inference_protocol.read, *found.groups(""))
        else:
            await self.others(scope, receive, send)


def build(service: Service, token: str = "") -> Application:
    """Return the application.

    Args:
        service: what answers.
        token: the bearer token that requests for answers must have; "" for none.
    """
    return Application(Answering(service, token), _others(service))


def _others(service: Service) -> FastAPI:
    """Return what answers all requests but those for labels, and describes those too."""
    description = "Labels texts with a fine-tuned encoder."
    app = FastAPI(title="Spark-BERT", description=description, redoc_url=None, redirect_slashes=False)

    # These two are never called: they are for the OpenAPI page, and for the refusal of other methods.
    @app.post(_QUERY, summary="Label texts", openapi_extra=QUERY)
    async def answer_query() -> None:
        raise NotImplementedError

    @app.post("/v2/models/{name}/infer", summary="Label texts (Open Inference Protocol)", openapi_extra=INFER)
    @app.post("/v2/models/{name}/versions/{version}/infer", include_in_schema=False)
    async def infer(name: str) -> None:
        raise NotImplementedError

    @app.get("/v2", summary="What this server is")
    async def server() -> dict[str, Any]:
        return {"name": "spark-bert", "version": service.revision, "extensions": []}

    @app.get("/v2/health/live", summary="Whether the process is well")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @app.get("/v2/health/ready", summary="Whether it can answer")
    @app.get("/v2/models/{name}/ready", summary="Whether this model answers")
    @app.get("/v2/models/{name}/versions/{version}/ready", include_in_schema=False)
    async def ready(name: str = "", version: str = "") -> dict[str, bool]:
        service.lane(name=name, version=version)
        return {"ready": True}

    @app.get("/v2/models/{name}", summary="The inputs and outputs of the model")
    @app.get("/v2/models/{name}/versions/{version}", include_in_schema=False)
    async def metadata(name: str, version: str = "") -> dict[str, Any]:
        return inference_protocol.metadata(service.lane(name=name, version=version).model)

    @app.get("/metrics", summary="Metrics for Prometheus")
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(Refusal)
    async def refuse(request: Request, refusal: Refusal) -> Response:
        return refused(refusal)

    @app.exception_handler(HTTPException)
    async def explain(request: Request, error: HTTPException) -> Response:
        """Say in the service's own form what the framework refuses: another path or method."""
        return JSONResponse({"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code)

    return app
