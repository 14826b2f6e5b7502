"""The body of a request: read in time, as far as there is room, and decompressed."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from tasks.serving.refusal import Gone, Refusal, SlowClient, TooLarge, Unsupported

#: The header with the size of the JSON that binary tensors follow (Triton's extension of the Open Inference Protocol).
JSON_SIZE = "inference-header-content-length"
#: Compressions by their names in Content-Encoding, with the `wbits` by which zlib knows them.
_COMPRESSIONS = {"gzip": 31, "deflate": 15}
#: The maximum number of digits of a size in a header. Python refuses to read thousands of them.
_DIGITS = 20


@dataclass(frozen=True)
class Body:
    """What a client sends.

    Attributes:
        json: the JSON.
        binary: what follows it, which are binary tensors; None if the client does not say that any follow.
    """

    json: bytes
    binary: bytes | None = None


def declared(request: Request, most: int) -> int:
    """Return the number of bytes that a body may need, by the headers of its request.

    Args:
        request: the request.
        most: the maximum number of bytes.

    Raises:
        TooLarge: if it has more.
    """
    size = request.headers.get("content-length", "")
    if size.isdecimal() and int(size) > most:
        raise _too_large(most)
    return most if not size.isdecimal() or "content-encoding" in request.headers else int(size)


async def read_body(request: Request, most: int, deadline: float) -> Body:
    """Read the body of a request.

    Args:
        request: the request.
        most: the maximum number of bytes, also of what is decompressed.
        deadline: the time of the event loop at which it must be there.

    Raises:
        TooLarge: if it has more bytes.
        Unsupported: if it is compressed in a way that is not known.
        Gone: if the client goes.
        SlowClient: if it does not come in time.
        Refusal: if it cannot be decompressed, or has less JSON than its header says.
    """
    content = _decompressed(await _read(request, most, deadline), request.headers.get("content-encoding", ""), most)
    size = request.headers.get(JSON_SIZE)
    if size is None:
        return Body(content)
    if not (size.isascii() and size.isdecimal() and len(size) <= _DIGITS) or int(size) > len(content):
        raise Refusal(f"Inference-Header-Content-Length is {size!r:.50}, but the body has {len(content)} bytes")
    return Body(content[: int(size)], content[int(size) :])


async def _read(request: Request, most: int, deadline: float) -> bytes:
    parts, length = [], 0
    try:
        async with asyncio.timeout_at(deadline):
            async for part in request.stream():
                length += len(part)
                if length > most:
                    raise _too_large(most)
                parts.append(part)
    except TimeoutError as error:
        raise SlowClient("the body has not come in time: send it at once") from error
    except ClientDisconnect as error:
        raise Gone("the client has gone") from error
    return b"".join(parts)


def _decompressed(content: bytes, encoding: str, most: int) -> bytes:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return content
    if name not in _COMPRESSIONS:
        raise Unsupported(f"the Content-Encoding is {encoding!r:.50}: send gzip, deflate, or what is not compressed")
    stream = zlib.decompressobj(_COMPRESSIONS[name])
    try:
        found = stream.decompress(content, most + 1)  # at most so many bytes, whatever it expands to
    except zlib.error as error:
        raise Refusal(f"the body is not {name}, as its Content-Encoding says: {error}") from error
    if len(found) > most:
        raise _too_large(most)
    if not stream.eof or stream.unused_data:
        raise Refusal(f"the body does not end where its {name} ends: send one whole stream")
    return found


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body has more than {most:,} bytes: send fewer texts at a time")
