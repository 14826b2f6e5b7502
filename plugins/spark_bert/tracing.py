"""Traces: a stage's spans become part of Airflow's trace of the run, and go where Airflow's own spans go."""

from __future__ import annotations

import logging
import os
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from airflow.sdk import Context
from opentelemetry import trace
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from include.tracing import FOLDER, SERVICE, TRACEPARENT, VARIABLES, WrittenSpan, read
from spark_bert.places import run_folder, run_name

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)
#: The most of a file that is read, in bytes: a stage may have written anything.
_MOST = 16 << 20


def environment(context: Context) -> dict[str, str]:
    """Return the variables that tell a stage which try of its Airflow task it is, and of which span it is part.

    Airflow's scheduler gives every Dag run the id of a trace, even where Airflow records none. The current span is that
    of the Airflow task, if Airflow records one.
    """
    ti = context["ti"]
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    parent = (carrier or getattr(ti, "context_carrier", None) or {}).get("traceparent")
    return {VARIABLES["try"]: str(ti.try_number), **({TRACEPARENT: parent} if parent else {})}


class StageSpans:
    """The spans that a stage writes while this try of its Airflow task runs."""

    def __init__(self, context: Context, stage: str) -> None:
        ti = context["ti"]
        self._file = run_folder(ti.dag_id, run_name(ti)) / FOLDER / f"{stage}.jsonl"
        self._before = self._size()

    def export(self) -> None:
        """Export the spans as Airflow exports its own, if it does. What goes wrong is logged and fails nothing."""
        if not trace.get_current_span().is_recording():
            return
        try:
            spans = [span for line in self._lines() for span in _read(line)]
            if spans:
                exporter = _exporter()
                exporter.export(spans)
                exporter.shutdown()
        except Exception:  # an exporter may raise anything, and a trace is no reason to fail
            log.warning("the spans in %s were not exported", self._file, exc_info=True)

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except OSError:  # there is none yet, or the worker may not look
            return 0

    def _lines(self) -> list[bytes]:
        if not self._file.is_file():
            return []
        with self._file.open("rb") as file:
            file.seek(self._before)
            return file.read(_MOST).splitlines()


def _exporter() -> SpanExporter:
    """Return an exporter of the kind that Airflow uses, with the settings that OpenTelemetry's variables give it."""
    name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
    (entry,) = entry_points(group="opentelemetry_traces_exporter", name=name)
    exporter: SpanExporter = entry.load()()
    return exporter


def _read(line: bytes) -> list[ReadableSpan]:
    """Read the spans of a line. One that was cut off by a full disk, or is no request at all, has none."""
    try:
        return [_span(written) for written in read(line)]
    except ValueError:
        log.warning("a line of the stage's spans is damaged and is not exported")
        return []


def _span(written: WrittenSpan) -> ReadableSpan:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    return ReadableSpan(
        written.name,
        _context(written.trace, written.id),
        _context(written.trace, written.parent) if written.parent else None,
        Resource(written.resource),
        written.attributes,
        status=Status() if written.error is None else Status(StatusCode.ERROR, written.error),
        start_time=written.start,
        end_time=written.end,
        instrumentation_scope=InstrumentationScope(SERVICE),
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
