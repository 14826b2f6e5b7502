"""What works through the numbered pieces of a stage: this process if there is little to do, else Spark's executors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from include import tracing
from include.experiment import Experiment
from tasks.staging import Staging, staging

T = TypeVar("T")
log = logging.getLogger(__name__)
ROWS_IN_PARTITION = 5000
#: From how many rows on Spark takes less time than the process of a stage, with its start of about 10 s. On two cores,
#: next to other work, predict took 31 s for 1,000 rows (with Spark 85), and 71 s for 4,000 (with Spark 65).
SPARK_FROM = {"validate": 1_000_000, "preprocess": 1_000_000, "teach": 4_000, "predict": 4_000, "score": 4_000}


class Workers(Protocol):
    """Work through pieces, and exchange files with the stage."""

    @property
    def staged(self) -> Staging:
        """Where they find the stage's files."""

    def map(self, work: Callable[[int], T], count: int) -> list[T]:
        """Return what the work answers for each number from 0 to count - 1, in this order."""


class ThisProcess:
    """The process of the stage. It works as one executor of Spark would: PyTorch's last bits depend on the threads."""

    staged = Staging()

    def map(self, work: Callable[[int], T], count: int) -> list[T]:
        """Do the work for one number after the other."""
        with tracing.span("pieces", count=count):
            return [work(number) for number in range(count)]


@contextmanager
def open_workers(experiment: Experiment, stage: str, rows: int) -> Iterator[Workers]:
    """Open the workers of a stage for about this many rows."""
    if not is_for_spark(experiment, stage, rows):
        yield ThisProcess()
        return
    from tasks.spark import Executors, session

    with session(experiment, stage) as spark, staging(spark) as staged:
        yield Executors(spark, staged)


def is_for_spark(experiment: Experiment, stage: str, rows: int) -> bool:
    """Return whether Spark works on about this many rows, and not the process of the stage, and log it."""
    engine = experiment.runtime.engine
    chosen = engine == "spark" or (engine == "auto" and rows >= SPARK_FROM[stage])
    where = experiment.runtime.spark_master if chosen else "this process"
    log.info("%s works on about %d rows (runtime.engine: %s)", where, rows, engine)
    return chosen


def partitions(rows: int) -> int:
    """Return the number of partitions for a number of rows: one per 5,000 rows as in the papers, and at least four."""
    return max(4, rows // ROWS_IN_PARTITION)
