"""Requests that are not answered, and why."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar


class Refusal(Exception):
    """A request that gets no answer. Its message says why, and goes to the client; its reason is in the metrics."""

    status: ClassVar[int] = 400
    reason: ClassVar[str] = "malformed"
    headers: Mapping[str, str] = MappingProxyType({})


class Unauthorized(Refusal):
    """The bearer token is missing or wrong."""

    status, reason = 401, "unauthorized"
    headers = MappingProxyType({"WWW-Authenticate": "Bearer"})


class Unknown(Refusal):
    """There is no such model or version."""

    status, reason = 404, "unknown model"


class SlowClient(Refusal):
    """The body does not come in time."""

    status, reason = 408, "slow client"


class TooLarge(Refusal):
    """The request has too many bytes, rows or tokens."""

    status, reason = 413, "too large"
    headers = MappingProxyType({"Connection": "close"})  # what is left of the body is not read


class Unsupported(Refusal):
    """The body is compressed in an unknown format."""

    status, reason = 415, "unsupported"
    headers = MappingProxyType({"Accept-Encoding": "gzip, deflate"})


class Later(Refusal):
    """A request that may be answered after some seconds."""

    def __init__(self, message: str, seconds: int) -> None:
        super().__init__(message)
        self.headers = {"Retry-After": str(seconds)}


class Overloaded(Later):
    """Too many tokens wait, or too many bodies."""

    status, reason = 429, "overloaded"


class Gone(Refusal):
    """The client has closed the connection."""

    status, reason = 499, "gone"  # as nginx counts it; it is never sent


class NotReady(Later):
    """No model has been loaded yet."""

    status, reason = 503, "not ready"


class TooSlow(Refusal):
    """The deadline has passed."""

    status, reason = 504, "deadline"
