"""Traces: a stage's spans become part of Airflow's trace of the run, and go where Airflow's own spans go."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from airflow.sdk import Context
from opentelemetry import trace
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from include.folders import open_file
from include.tracing import FOLDER, SERVICE, TRACEPARENT, VARIABLES, Span, read_part
from spark_bert.deployment.places import run_folder, run_name

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)
_MOST = 16 << 20  # bytes of a file that are read


def environment(context: Context) -> dict[str, str]:
    """Return the variables that tell a stage the try of its Airflow task, and the span or trace that it is part of."""
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
        self._before = 0
        with suppress(OSError):  # there is none yet, or the worker may not look
            self._before = self._file.stat().st_size

    def export(self) -> None:
        """Export the spans as Airflow exports its own, if it does. Errors are only logged."""
        if not trace.get_current_span().is_recording():
            return
        try:
            written, damaged = list[Span](), 0
            with suppress(FileNotFoundError), open_file(self._file.parents[2], *self._file.parts[-3:]) as file:
                written, damaged = read_part(file, self._before, _MOST)
            if damaged:
                log.warning("%d lines of the stage's spans are damaged and are not exported", damaged)
            if written:
                # Of the kind that Airflow uses. OpenTelemetry's variables configure it.
                name = os.environ.get("OTEL_TRACES_EXPORTER", "otlp")
                (entry,) = entry_points(group="opentelemetry_traces_exporter", name=name)
                exporter: SpanExporter = entry.load()()
                exporter.export(list(map(_span, written)))
                exporter.shutdown()
        except Exception:  # an exporter may raise anything, and a trace is no reason to fail
            log.warning("the spans in %s were not exported", self._file, exc_info=True)


def _span(written: Span) -> ReadableSpan:
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
