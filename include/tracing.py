"""Spans of a stage's process, in the JSON of OpenTelemetry's protocol (OTLP), one request per line of a file.

A stage has no network in its container, so it writes each span, when it has ended, into the folder of its run, at
traces/<stage>.jsonl. The operator exports them if Airflow's own tracing is on. OpenTelemetry's SDK is not used, because
the image of trainings does not contain it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

Value = str | bool | int | float

#: The folder of a run that holds its spans.
FOLDER = "traces"
SERVICE = "spark-bert"
#: The variable with the span that a stage is part of, as W3C's Trace Context writes it.
TRACEPARENT = "TRACEPARENT"
#: Attributes of the resource, and the variables with their values. Airflow itself gives them these names, except for
#: the index in a mapped task group.
VARIABLES = {
    "dag_id": "AIRFLOW_CTX_DAG_ID",
    "run_id": "AIRFLOW_CTX_DAG_RUN_ID",
    "map_index": "AIRFLOW_CTX_MAP_INDEX",
    "try": "AIRFLOW_CTX_TRY_NUMBER",
}
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_INTERNAL, _ERROR = 1, 2  # SPAN_KIND_INTERNAL and STATUS_CODE_ERROR
_LAST = 1 << 63  # nanoseconds since 1970


@dataclass(frozen=True)
class Origin:
    """Where the spans of a process belong."""

    trace: str  # an id of 32 hexadecimal digits
    parent: str  # the id of the span that the process is part of, 16 hexadecimal digits, or "" if there is none
    resource: dict[str, Value]  # what the process is, as OpenTelemetry's resource attributes

    @classmethod
    def of_stage(cls, folder: Path | None, stage: str) -> Self:
        """Return the origin of a stage's spans: that of $TRACEPARENT, or without a scheduler, of the run's folder."""
        told = {name: os.environ[variable] for name, variable in VARIABLES.items() if os.environ.get(variable)}
        run = {"run": folder.name} if folder else {}
        resource: dict[str, Value] = {"service.name": SERVICE, **run, "stage": stage, **told}
        resource["host.name"] = socket.gethostname()
        match = _TRACEPARENT.fullmatch(os.environ.get(TRACEPARENT, ""))
        if match:
            return cls(match[1], match[2], resource)
        return cls(hashlib.sha256(os.fsencode((folder or Path()).absolute())).hexdigest()[:32], "", resource)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what `hand_over` wrote. The process may be on another host."""
        origin = cls(**json.loads(file.read_text(encoding="utf-8")))
        origin.resource["host.name"] = socket.gethostname()
        return origin


@dataclass
class Span:
    """A span. Times are in nanoseconds since 1970, and ids are those of Origin."""

    name: str
    trace: str  # "" if this process does not record
    parent: str
    attributes: dict[str, Value]
    resource: dict[str, Value]
    start: int
    end: int = 0
    error: str | None = None  # why it has failed
    id: str = field(default_factory=lambda: secrets.token_hex(8))


class _Recording(NamedTuple):
    file: Path
    root: Span


_recording: _Recording | None = None
_current: ContextVar[Span | None] = ContextVar("span", default=None)


@contextmanager
def recording(file: Path, origin: Origin, name: str) -> Iterator[Span]:
    """Record the spans of this process, the whole of which is a span of this name, in a file as soon as each ends."""
    global _recording
    before = _recording
    root = Span(name, origin.trace, origin.parent, {}, origin.resource, time.time_ns())
    _recording = _Recording(file, root)
    try:
        with _ending(root):
            yield root
    finally:
        _recording = before


@contextmanager
def span(name: str, **attributes: Value) -> Iterator[Span]:
    """Record the time within the context as a span. Nothing is written unless this process records."""
    with _ending(_new(name, attributes, time.time_ns())) as begun:
        yield begun


def add(name: str, start: int, end: int, error: str | None = None, **attributes: Value) -> None:
    """Record a span that has ended, as part of the current one. Times are in nanoseconds since 1970."""
    ended = _new(name, attributes, start)
    ended.end, ended.error = end, error
    _write(ended)


def is_recording() -> bool:
    """Return whether this process records spans."""
    return _recording is not None


def current() -> str:
    """Return the id of the current span, or "". In a thread that has begun none, it is the outermost one."""
    begun = _current.get() or (_recording and _recording.root)
    return begun.id if begun else ""


def hand_over(file: Path) -> None:
    """Write the origin of spans that another process adds to the current one, if this process records."""
    if _recording:
        origin = Origin(_recording.root.trace, current(), _recording.root.resource)
        file.write_text(json.dumps(asdict(origin)), encoding="utf-8")


def take_over(file: Path) -> None:
    """Move the spans that another process has recorded in a file to those of this process, if it records."""
    with suppress(OSError):
        if _recording:
            _append(_recording.file, file.read_bytes())
        file.unlink()


def read_part(file: BinaryIO, start: int, most: int) -> tuple[list[Span], int]:
    """Return the spans in at most `most` bytes of a file, from `start` on, and the number of damaged lines."""
    file.seek(start)
    spans, damaged = list[Span](), 0
    for line in file.read(most).splitlines():
        try:
            spans += read(line)
        except ValueError:
            damaged += 1
    return spans, damaged


def read(line: bytes) -> list[Span]:
    """Return the spans in a line of a file. Raise ValueError if it is no such request, such as one that was cut off."""
    try:
        return [
            _read_span(content, group["resource"])
            for group in json.loads(line)["resourceSpans"]
            for scope in group["scopeSpans"]
            for content in scope["spans"]
        ]
    except (TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("this is no request of OpenTelemetry's protocol") from error


def _new(name: str, attributes: dict[str, Value], start: int) -> Span:
    trace, resource = (_recording.root.trace, _recording.root.resource) if _recording else ("", {})
    return Span(name, trace, current(), attributes, resource, start)


@contextmanager
def _ending(begun: Span) -> Iterator[Span]:
    clock, token = time.monotonic_ns(), _current.set(begun)
    try:
        yield begun
    except BaseException as error:
        begun.error = str(error) if str(error) and isinstance(error, Exception) else repr(error)
        raise
    finally:
        _current.reset(token)
        begun.end = begun.start + time.monotonic_ns() - clock
        _write(begun)


def _write(span: Span) -> None:
    """Append a span to the file of this process as an ExportTraceServiceRequest in JSON, if it records."""
    if not _recording:
        return
    content = {
        "traceId": span.trace,
        "spanId": span.id,
        "parentSpanId": span.parent,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error},
    }
    scope = {"scope": {"name": SERVICE}, "spans": [content]}
    resource = {"attributes": _attributes(span.resource)}
    request = {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}
    line = json.dumps(request, ensure_ascii=False, allow_nan=False) + "\n"
    _append(_recording.file, line.encode("utf-8", "replace"))


def _attributes(values: dict[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Value]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # JSON's numbers are no 64-bit integers
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def _read_span(content: dict[str, Any], resource: dict[str, Any]) -> Span:
    start, end, status = int(content["startTimeUnixNano"]), int(content["endTimeUnixNano"]), content["status"]
    trace, own, parent, name = (content[key] for key in ("traceId", "spanId", "parentSpanId", "name"))
    if not 0 <= start <= end < _LAST or not all(isinstance(text, str) for text in (trace, own, parent, name)):
        raise ValueError("a span has impossible times, or no name")
    error = str(status.get("message", "")) if status.get("code") == _ERROR else None
    attributes, about = _plain(content["attributes"]), _plain(resource["attributes"])
    return Span(name, trace, parent, attributes, about, start, end, error, own)


def _plain(pairs: list[dict[str, Any]]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for pair in pairs:
        ((kind, value),) = pair["value"].items()
        found[str(pair["key"])] = int(value) if kind == "intValue" else value
        if not isinstance(value, Value):
            raise ValueError("a span has an attribute that is neither a text, a number nor a truth")
    return found


def _append(file: Path, lines: bytes) -> None:
    """Append whole lines in one call. If they cannot be written, there is no trace, and the stage continues."""
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        try:
            os.write(descriptor, lines)
        finally:
            os.close(descriptor)
