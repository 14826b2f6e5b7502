"""The connections of clients: how many there are, and how much and how long a client may send before it is answered.

These limits apply before the bearer token is known, so that no client can fill the memory or block the event loop.
"""

from __future__ import annotations

import asyncio
import json
import resource
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

#: The maximum number of connections, and the share of the process's file handles that they may have.
CONNECTIONS, HANDLES = 4_000, 0.5
#: The maximum number of bytes of a request that are not its body. One read of the socket may exceed it.
HEAD_BYTES = 65_536
#: Seconds that a client has for the head of a request, and from an answer to the next head. The body has the deadline.
PATIENCE = 10.0
#: The maximum number of requests that a client sends ahead of their answers.
AHEAD = 16


class Connection(HttpToolsProtocol):
    """A connection that is closed if its client sends too much, too slowly, or nothing while others wait.

    When there are too many connections, the one whose client has been awaited for the longest, counted from the start
    of its request, is closed. If all clients wait for answers, the new one is refused.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._head = True  # whether it is the head of a request that is awaited
        self._since: float | None = self.loop.time()  # since when more is awaited; None while the client waits
        self._framing = 0  # bytes of the request, without its body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection if there is room."""
        super().connection_made(transport)
        handles = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # of which loading a model needs some
        if len(self.connections) > min(CONNECTIONS, int(HANDLES * handles)) and not self._make_room():
            self._refuse(503, "too many connections: try again in 1 s", "Retry-After: 1\r\n")
        self.loop.call_later(PATIENCE, self._look)

    def data_received(self, data: bytes) -> None:
        """Parse what has come."""
        self._framing += len(data)
        super().data_received(data)
        if self._framing <= HEAD_BYTES or self.transport.is_closing():
            return
        if self._head:
            self._refuse(431, f"the head of the request has more than {HEAD_BYTES:,} bytes")
        else:  # an answer may be under way
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Note that a request has begun."""
        self._since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start to answer, unless too many requests wait for that."""
        if len(self.pipeline) >= AHEAD:
            raise ValueError("too many requests at a time")  # uvicorn answers it with 400, and closes
        self._head = False
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._framing -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that it is the service's turn, or the client's again if the answer has not waited for the body."""
        self._framing, self._head = 0, self.cycle.response_complete
        self._since = self.loop.time() if self._head else None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Await the next request."""
        super().on_response_complete()
        if self.cycle.response_complete:  # and none has been sent ahead
            self._head, self._since = True, self.loop.time()

    def _look(self) -> None:
        """Close the connection if its client has kept it waiting for too long, and otherwise look again."""
        if self not in self.connections:
            return
        awaited = self._since if self._head else None
        left = PATIENCE if awaited is None else awaited + PATIENCE - self.loop.time()
        if left <= 0:
            self.transport.abort()  # an orderly end would wait until the client has read what was sent
        else:
            self.loop.call_later(left, self._look)

    def _make_room(self) -> bool:
        """Close the connection whose client has been awaited for the longest; False if there is none."""
        others = [each for each in self.connections if isinstance(each, Connection) and each is not self]
        awaited = [(each._since, id(each), each) for each in others if each._since is not None]
        if not awaited:
            return False
        longest = min(awaited)[2]
        self.connections.discard(longest)  # at once, because others may come before it is closed
        longest.transport.abort()
        return True

    def _refuse(self, status: int, message: str, headers: str = "") -> None:
        """Answer before there is a request, and close the connection."""
        body = json.dumps({"error": message})
        head = f"HTTP/1.1 {status} \r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}"
        self.transport.write(f"{head}Connection: close\r\n\r\n{body}".encode())
        self.transport.close()
