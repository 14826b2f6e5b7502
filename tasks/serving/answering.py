"""Requests for labels: who may ask, the body, the answer, and what becomes of clients that go."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import getrandbits
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Send

from tasks.serving.batcher import CHARACTERS
from tasks.serving.body import Body, declared, read_body
from tasks.serving.refusal import Gone, Overloaded, Refusal, Unauthorized
from tasks.serving.served_model import ServedModel
from tasks.serving.service import Answers, Service
from tasks.serving.shares import Shares
from tasks.serving.texts import Asked

log = logging.getLogger(__name__)

#: What reads a body for a model.
Read = Callable[[Body, ServedModel], Asked]
#: The maximum number of characters of an id in a header.
LONGEST_ID = 128
#: How many bodies of the maximum size there is room for.
BODIES = 64


def refused(refusal: Refusal, name: str = "") -> JSONResponse:
    """Return the response to a request that gets no answer; `name` is its id, if it has one."""
    content = {"error": str(refusal)} | ({"id": name} if name else {})
    return JSONResponse(content, refusal.status, refusal.headers)


@dataclass(frozen=True)
class Answering:
    """Answers requests for labels, whatever their protocol is.

    Attributes:
        service: what answers.
        token: the bearer token that requests must have; "" for none.
        bodies: the bytes of the bodies that are being read or answered.
    """

    service: Service
    token: str
    bodies: Shares

    async def respond(self, request: Request, send: Send, read: Read, name: str = "", version: str = "") -> None:
        """Answer a request, or say why not. A client that has gone gets nothing, and its texts are not computed.

        Args:
            request: the request.
            send: where the response goes.
            read: reads the body.
            name: the name of the model that must answer; "" for any.
            version: the version that must answer; "" for any.
        """
        started, identity = time.perf_counter(), _identity(request)
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
        with self.service.held(identity, name, version) as lane:
            most = self.service.serving.max_bytes
            size = declared(request, most)
            # Before anything is done for the request, because there may be many. It has about so many tokens or more;
            # the size of a body that is compressed or comes in chunks does not say how many.
            least = min(size // CHARACTERS, lane.model.package.max_length) if size < most else 1
            lane.batcher.refuse_if_full(least, client, deadline)
            if not self.bodies.has_room(client, size):
                raise Overloaded("too many requests are being read: try again in 1 s", 1)
            with self.bodies.held(client, size):
                asked = read(await read_body(request, most, deadline), lane.model)
                answers = await _unless_gone(request, self.service.answer(lane, asked.texts, client, deadline))
        return asked.written(answers, asked.id or identity)

    def _authorize(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # Headers are read as Latin-1, so this is what the client has sent.
        known = hmac.compare_digest(given.strip().encode("latin-1"), self.token.encode())
        if self.token and not (known and scheme.lower() == "bearer"):
            raise Unauthorized("the bearer token is missing or wrong: send the header Authorization: Bearer TOKEN")


def _identity(request: Request) -> str:
    """Return the id that a client gives its request in a header, or else a new one."""
    return request.headers.get("x-request-id", "")[:LONGEST_ID] or f"{getrandbits(128):032x}"


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
