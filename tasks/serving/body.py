"""The body of a request: read in time, as far as there is room, decompressed, and its JSON and texts checked."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from include.text import is_blank, is_unwritable
from tasks.serving.refusal import Gone, Refusal, SlowClient, TooLarge, Unsupported
from tasks.serving.service import Answers

#: The header with the size of the JSON that binary tensors follow (Triton's extension of the Open Inference Protocol).
JSON_SIZE = "inference-header-content-length"
#: Compressions by their names in Content-Encoding, with the `wbits` by which zlib knows them.
_COMPRESSIONS = {"gzip": 31, "deflate": 15}
#: The maximum number of digits of a size in a header. Python refuses to read thousands of them.
_DIGITS = 20


@dataclass(frozen=True)
class Body:
    """What a client sends: JSON, and the binary tensors that follow it, or None if no header says that any do."""

    json: bytes
    binary: bytes | None = None


@dataclass(frozen=True)
class Asked:
    """What a request asks for."""

    texts: list[list[str]]  # for each column of the model, those of all rows
    id: str  # that the client gives the request; "" for none
    written: Callable[[Answers, str], Response]  # turns the answers and the id into the response
    explain: bool = False  # whether it asks for explanations


def declared(request: Request, most: int) -> int:
    """Return how many bytes a body may need by the headers of its request; raise TooLarge if these are too many."""
    size = request.headers.get("content-length", "")
    if size.isdecimal() and int(size) > most:
        raise _too_large(most)
    return most if not size.isdecimal() or "content-encoding" in request.headers else int(size)


async def read_body(request: Request, most: int, deadline: float) -> Body:
    """Read a body of at most some bytes, both as sent and decompressed, until a time of the event loop's clock."""
    content = _decompressed(await _read(request, most, deadline), request.headers.get("content-encoding", ""), most)
    size = request.headers.get(JSON_SIZE)
    if size is None:
        return Body(content)
    if not (size.isascii() and size.isdecimal() and len(size) <= _DIGITS) or int(size) > len(content):
        raise Refusal(f"Inference-Header-Content-Length is {size!r:.50}, but the body has {len(content)} bytes")
    return Body(content[: int(size)], content[int(size) :])


def read_json(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; raise Refusal if it is something else."""
    try:
        value = json.loads(body.decode())  # from bytes, json would read UTF-16 too
    except UnicodeDecodeError as error:
        raise Refusal(f"the body is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
    except RecursionError as error:
        raise Refusal("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise Refusal(f"the body is not JSON: {error}") from error
    except ValueError as error:  # Python's limit on the digits of a number
        raise Refusal("the body has a number with too many digits") from error
    if not isinstance(value, dict):
        raise Refusal(f"the body is {_kind(value)}: send an object")
    return value


def identity(value: dict[str, Any]) -> str:
    """Return the id that a client gives its request, or ""; raise Refusal if it cannot be written."""
    found = value.get("id")
    if found is None:  # as clients write that have none
        return ""
    if not isinstance(found, str) or is_unwritable(found):
        raise Refusal('"id" is not a string, or cannot be written as UTF-8')
    return found


def checked(text: Any, where: str) -> str:
    """Return a text; raise Refusal if it is something else, empty, or cannot be written as UTF-8."""
    if not isinstance(text, str):
        raise Refusal(f"{where} is {_kind(text)}: send a string")
    if is_blank(text):
        raise Refusal(f"{where} is empty")
    if is_unwritable(text):
        raise Refusal(f"{where} contains a NUL character or half of a surrogate pair: remove it")
    return text


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
        found = stream.decompress(content, most + 1)  # no more, whatever it expands to
    except zlib.error as error:
        raise Refusal(f"the body is not {name}, as its Content-Encoding says: {error}") from error
    if len(found) > most:
        raise _too_large(most)
    if not stream.eof or stream.unused_data:
        raise Refusal(f"the body does not end where its {name} ends: send one whole stream")
    return found


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body has more than {most:,} bytes: send fewer texts at a time")


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
