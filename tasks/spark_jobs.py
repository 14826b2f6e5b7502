"""The jobs of a Spark session as spans. Spark's own record of them says when each began and ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from include import tracing

log = logging.getLogger(__name__)
#: A stream has jobs without end. This many, the last ones, become spans.
MOST = 200
#: The description of jobs that do nothing and are no spans.
EMPTY = "keep the Python workers"


@contextmanager
def jobs_as_spans(spark: SparkSession) -> Iterator[None]:
    """Record the jobs that end within the context, unless it raises: then the JVM may answer no more calls."""
    if not tracing.is_recording():
        yield
        return
    before: set[int] = set()
    with _harmless():
        before = {job.jobId() for job in _jobs(spark)}
    yield
    with _harmless():
        new = [job for job in _jobs(spark) if job.jobId() not in before and _is_told(job)]
        for job in sorted(new, key=lambda job: int(job.jobId()))[-MOST:]:
            _record(job)


@contextmanager
def _harmless() -> Iterator[None]:
    """Log any error: a trace is no reason to fail."""
    try:
        yield
    except Exception as error:
        log.warning("Spark does not say which jobs it had, so the trace lacks some of them: %s", error)


def _jobs(spark: SparkSession) -> list[Any]:
    """Return Spark's record of all jobs that it still knows of: org.apache.spark.status.api.v1.JobData."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # the record follows the jobs
    found = context.statusStore().jobsList(None)
    return [found.apply(number) for number in range(found.length())]


def _is_told(job: Any) -> bool:
    description = job.description()
    return job.completionTime().isDefined() and not (description.isDefined() and description.get() == EMPTY)


def _name(job: Any) -> str:
    name = str(job.name())
    return "a job of a query" if name.startswith("$anonfun$") else name


def _record(job: Any) -> None:
    start, end = (time.get().getTime() * 1_000_000 for time in (job.submissionTime(), job.completionTime()))
    status = job.status().toString()
    error = None if status == "SUCCEEDED" else f"the job has {status.lower()}"
    attributes = {"spark.job": job.jobId(), "spark.tasks": job.numTasks()}
    tracing.add(f"Spark: {_name(job)}", start, end, error, **attributes)
