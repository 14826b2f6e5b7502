"""The service over HTTP: a model that labels texts."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import getrandbits
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
from tasks.serving.batcher import CHARACTERS
from tasks.serving.body import Asked, Body, declared, read_body
from tasks.serving.examples import INFER, INFER_RESPONSES, QUERY, QUERY_RESPONSES
from tasks.serving.refusal import Gone, Overloaded, Refusal, Unauthorized
from tasks.serving.served_model import ServedModel
from tasks.serving.service import Answers, Service
from tasks.serving.waiting import Shares

log = logging.getLogger(__name__)

#: What reads a body for a model.
Read = Callable[[Body, ServedModel], Asked]
#: The paths of requests for labels.
_QUERY, _INFER = "/query", re.compile("/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
#: The extensions of the protocol, as Triton calls them.
_EXTENSIONS = ["binary_tensor_data", "model_configuration", "statistics"]
#: The maximum number of characters of an id in a header.
_LONGEST_ID = 128
#: How many bodies of the maximum size there is room for.
_BODIES = 64


@dataclass(frozen=True)
class Application:
    """The ASGI application: requests for labels are answered at once, and FastAPI routes all others.

    FastAPI takes nearly as long to call a function as everything else that a refusal takes, and under overload the
    model lacks this time.
    """

    service: Service
    token: str  # that requests for labels must have; "" for none
    bodies: Shares  # of the bytes that are being read or answered
    others: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        method = scope.get("method", "")
        path = scope["path"] if method == "POST" else ""
        if path == _QUERY:
            await self._respond(Request(scope, receive), send, query.read)
        elif found := _INFER.fullmatch(path):
            await self._respond(Request(scope, receive), send, inference_protocol.read, *found.groups(""))
        else:
            # The server leaves out the body of the answer to a HEAD.
            await self.others({**scope, "method": "GET"} if method == "HEAD" else scope, receive, send)

    async def _respond(self, request: Request, send: Send, read: Read, name: str = "", version: str = "") -> None:
        """Answer a request with a model of this name and version, "" for any, or say why not."""
        started = time.perf_counter()
        identity = request.headers.get("x-request-id", "")[:_LONGEST_ID] or f"{getrandbits(128):032x}"
        try:
            response: Response = await self._answer(request, read, identity, name, version)
        except Refusal as refusal:
            self.service.metrics.refusals.labels(refusal.reason).inc()
            response = refused(refusal, identity)
        except Exception:
            log.exception("request %s has failed", identity)
            self.service.metrics.refusals.labels("failed").inc()
            message = "the service has failed on this request, and says why in its log"
            response = JSONResponse({"error": message, "id": identity}, 500)
        response.headers["X-Request-ID"] = identity
        self.service.metrics.seconds.labels(response.status_code).observe(time.perf_counter() - started)
        await response(request.scope, request.receive, send)

    async def _answer(self, request: Request, read: Read, identity: str, name: str, version: str) -> Response:
        self._authorize(request)
        deadline = asyncio.get_running_loop().time() + self.service.serving.deadline
        client = request.client.host if request.client else ""
        lane = self.service.lane(identity, name, version)
        with lane.batcher.held():  # so this model answers even if another takes its place meanwhile
            most = self.service.serving.max_bytes
            size = declared(request, most)
            # Refuse before anything is done for the request, because there may be many. It has at least about this
            # many tokens; the size of a body that is compressed or comes in chunks does not say how many.
            least = min(size // CHARACTERS, lane.model.package.max_length) if size < most else 1
            lane.batcher.refuse_if_full(least, client, deadline)
            if not self.bodies.has_room(client, size):
                raise Overloaded("too many requests are being read: try again in 1 s", 1)
            with self.bodies.held(client, size):
                asked = read(await read_body(request, most, deadline), lane.model)
                answering = self.service.answer(lane, asked.texts, client, deadline, asked.explain)
                answers = await _unless_gone(request, answering)
        return asked.written(answers, asked.id or identity)

    def _authorize(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # Headers are read as Latin-1, so this is what the client has sent.
        known = hmac.compare_digest(given.strip().encode("latin-1"), self.token.encode())
        if self.token and not (known and scheme.lower() == "bearer"):
            raise Unauthorized("the bearer token is missing or wrong: send the header Authorization: Bearer TOKEN")


def refused(refusal: Refusal, identity: str = "") -> JSONResponse:
    """Return the response to a request that gets no answer, with its id if it has one."""
    content = {"error": str(refusal)} | ({"id": identity} if identity else {})
    return JSONResponse(content, refusal.status, refusal.headers)


async def _unless_gone(request: Request, answering: Coroutine[Any, Any, Answers]) -> Answers:
    """Wait for an answer, but raise Gone and compute no more of it when the client has closed the connection."""
    answer = asyncio.ensure_future(answering)
    gone = asyncio.ensure_future(request.receive())  # after the body, the only message is that the client has gone
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Gone("the client has gone")
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


def build(service: Service, token: str = "") -> Application:
    """Return the application; requests for labels need the bearer token if there is one."""
    # A plain FastAPI's page of documentation loads its scripts from another server.
    app = FastAPIOffline(
        title="Spark-BERT",
        description="Labels texts with a fine-tuned encoder.",
        version=revision(),
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_parameters={"defaultModelsExpandDepth": -1},  # no list of schemas below the requests
    )
    _describe_answers(app, token)
    _answer_others(app, service)
    return Application(service, token, Shares(_BODIES * service.serving.max_bytes), app)


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
    model: dict[str, Any] = {"tags": ["Model"]}
    health: dict[str, Any] = {"tags": ["Health"]}

    @app.get("/v2", summary="What this server is", **health)
    async def server() -> dict[str, Any]:
        return {"name": "spark-bert", "version": app.version, "extensions": _EXTENSIONS}

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
