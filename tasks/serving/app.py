"""The service over HTTP: a model that labels texts."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import getrandbits
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tasks.serving import inference_protocol, query
from tasks.serving.examples import INFER, QUERY
from tasks.serving.refusal import Gone, Refusal, SlowClient, TooLarge, Unauthorized
from tasks.serving.served_model import ServedModel
from tasks.serving.service import Answers, Service
from tasks.serving.texts import Asked

log = logging.getLogger(__name__)

#: What reads a body for a model.
Read = Callable[[bytes, ServedModel], Asked]
#: The maximum number of characters of an id in a header.
LONGEST_ID = 128


def build(service: Service, token: str = "") -> FastAPI:
    """Return the application.

    Args:
        service: what answers.
        token: the bearer token that requests for answers must have; "" for none.
    """
    description = "Labels texts with a fine-tuned encoder."
    app = FastAPI(title="Spark-BERT", description=description, redoc_url=None, redirect_slashes=False)
    answering = Answering(service, token)

    @app.post("/query", summary="Label texts", openapi_extra=QUERY)
    async def answer_query(request: Request) -> Response:
        return await answering.respond(request, query.read)

    @app.post("/v2/models/{name}/infer", summary="Label texts (Open Inference Protocol)", openapi_extra=INFER)
    @app.post("/v2/models/{name}/versions/{version}/infer", include_in_schema=False)
    async def infer(request: Request, name: str, version: str = "") -> Response:
        return await answering.respond(request, inference_protocol.read, name, version)

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
        return _refused(refusal)

    @app.exception_handler(HTTPException)
    async def explain(request: Request, error: HTTPException) -> Response:
        """Say in the service's own form what the framework refuses: another path or method."""
        return JSONResponse({"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code)

    return app


def _refused(refusal: Refusal, name: str = "") -> JSONResponse:
    content = {"error": str(refusal)} | ({"id": name} if name else {})
    return JSONResponse(content, refusal.status, refusal.headers)


@dataclass(frozen=True)
class Answering:
    """Answers requests for labels, whatever their protocol is.

    Attributes:
        service: what answers.
        token: the bearer token that requests must have; "" for none.
    """

    service: Service
    token: str

    async def respond(self, request: Request, read: Read, name: str = "", version: str = "") -> Response:
        """Answer a request, or say why not. A client that has gone gets nothing, and its texts are not computed."""
        started, identity = time.perf_counter(), _identity(request)
        try:
            response: Response = await self._answer(request, read, identity, name, version)
        except Refusal as refusal:
            self.service.metrics.refusals.labels(refusal.reason).inc()
            response = _refused(refusal, identity)
        except Exception:
            log.exception("request %s has failed", identity)
            self.service.metrics.refusals.labels("failed").inc()
            message = "the service has failed on this request, and says why in its log"
            response = JSONResponse({"error": message, "id": identity}, 500)
        response.headers["X-Request-ID"] = identity
        self.service.metrics.seconds.labels(response.status_code).observe(time.perf_counter() - started)
        return response

    async def _answer(self, request: Request, read: Read, identity: str, name: str, version: str) -> Response:
        self._authorize(request)
        deadline = asyncio.get_running_loop().time() + self.service.serving.deadline
        with self.service.held(identity, name, version) as lane:
            body = await _body(request, self.service.serving.max_bytes, deadline)
            asked = read(body, lane.model)
            answers = await _unless_gone(request, self.service.answer(lane, asked.texts, deadline, identity))
        return JSONResponse(asked.written(answers, asked.id or identity))

    def _authorize(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # Headers are read as Latin-1, so this is what the client has sent.
        known = hmac.compare_digest(given.strip().encode("latin-1"), self.token.encode())
        if self.token and not (known and scheme.lower() == "bearer"):
            raise Unauthorized("the bearer token is missing or wrong: send the header Authorization: Bearer TOKEN")


def _identity(request: Request) -> str:
    """Return the id that a client gives its request in a header, or else a new one."""
    return request.headers.get("x-request-id", "")[:LONGEST_ID] or f"{getrandbits(128):032x}"


async def _body(request: Request, most: int, deadline: float) -> bytes:
    """Read the body of a request.

    Args:
        request: the request.
        most: the maximum number of bytes.
        deadline: the time of the event loop at which it must be there.

    Raises:
        TooLarge: if it has more bytes, or says so.
        Gone: if the client goes.
        SlowClient: if it does not come in time.
    """
    message = f"the body has more than {most:,} bytes: send fewer texts at a time"
    size = request.headers.get("content-length", "0")
    if size.isdecimal() and int(size) > most:
        raise TooLarge(message)
    parts, length = [], 0
    try:
        async with asyncio.timeout_at(deadline):
            async for part in request.stream():
                length += len(part)
                if length > most:
                    raise TooLarge(message)
                parts.append(part)
    except TimeoutError as error:
        raise SlowClient("the body has not come in time: send it at once") from error
    except ClientDisconnect as error:
        raise Gone("the client has gone") from error
    return b"".join(parts)


async def _unless_gone(request: Request, answering: Coroutine[Any, Any, Answers]) -> Answers:
    """Wait for an answer, and give it up when the client goes.

    Raises:
        Gone: if the client has gone.
    """
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
