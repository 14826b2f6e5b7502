"""The service over HTTP: a model that labels texts."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import ClientDisconnect

from tasks.serving import inference_protocol, query
from tasks.serving.examples import INFER, QUERY
from tasks.serving.refusal import Gone, Refusal, SlowClient, TooLarge, Unauthorized, Unknown
from tasks.serving.service import Answers, Service
from tasks.serving.texts import Asked

log = logging.getLogger(__name__)

#: What reads a body: it takes the body and the names of the model's inputs.
Read = Callable[[bytes, list[str]], Asked]


def build(service: Service, token: str = "") -> FastAPI:
    """Return the application.

    Args:
        service: what answers.
        token: the bearer token that requests for answers must have; "" for none.
    """
    app = FastAPI(
        title="Spark-BERT", description="Labels texts with a fine-tuned encoder.", docs_url="/docs", redoc_url=None
    )
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
        _find(service, name, version)
        return {"ready": True}

    @app.get("/v2/models/{name}", summary="The inputs and outputs of the model")
    @app.get("/v2/models/{name}/versions/{version}", include_in_schema=False)
    async def metadata(name: str, version: str = "") -> dict[str, Any]:
        _find(service, name, version)
        return inference_protocol.metadata(service.model)

    @app.get("/metrics", summary="Metrics for Prometheus")
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(Refusal)
    async def refuse(request: Request, refusal: Refusal) -> Response:
        return _refused(refusal)

    return app


def _refused(refusal: Refusal, name: str = "") -> JSONResponse:
    content = {"error": str(refusal)} | ({"id": name} if name else {})
    return JSONResponse(content, refusal.status, refusal.headers)


def _find(service: Service, name: str, version: str) -> None:
    """Raise Unknown if another model or version is asked for than the one in use; "" is any."""
    model = service.model
    if name not in ("", model.name) or version not in ("", model.version):
        asked = f"version {version} of {name}" if version else name
        raise Unknown(f"there is no {asked}: version {model.version} of {model.name} answers")


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
        started, identity = time.perf_counter(), request.headers.get("x-request-id", "") or uuid4().hex
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
        _find(self.service, name, version)
        body = await _body(request, self.service.serving.max_bytes, self.service.serving.deadline)
        asked = read(body, self.service.model.package.columns)
        answers = await _unless_gone(request, self.service.answer(asked.texts))
        return JSONResponse(asked.written(answers, asked.id or identity))

    def _authorize(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if self.token and not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            raise Unauthorized("the bearer token is missing or wrong: send the header Authorization: Bearer TOKEN")


async def _body(request: Request, most: int, deadline: float) -> bytes:
    """Read the body of a request.

    Raises:
        TooLarge: if it has more bytes than `most`, or says so.
        Gone: if the client goes.
        SlowClient: if it does not come within the deadline in seconds.
    """
    message = f"the body has more than {most:,} bytes: send fewer texts at a time"
    size = request.headers.get("content-length", "0")
    if size.isdecimal() and int(size) > most:
        raise TooLarge(message)
    parts, length = [], 0
    try:
        async with asyncio.timeout(deadline):
            async for part in request.stream():
                length += len(part)
                if length > most:
                    raise TooLarge(message)
                parts.append(part)
    except TimeoutError as error:
        raise SlowClient(f"the body has not come within {deadline:g} s") from error
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
