"""The time that each phase of a training takes on one rank: a sum over the steps, because steps are many and short."""

from __future__ import annotations

import time

from include import tracing


class Phase:
    """A phase. Enter it as a context as often as it takes place; two clock readings are all that this costs."""

    def __init__(self) -> None:
        self.seconds, self.count = 0.0, 0
        self.began = self.ended = self._entered = 0.0

    def __enter__(self) -> None:
        self._entered = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.ended = time.perf_counter()
        self.began = self.began or self._entered
        self.seconds += self.ended - self._entered
        self.count += 1


class Phases:
    """The phases of a training on this rank, since this process began it.

    A GPU computes while Python goes on, so that its time there counts where Python waits for it next. What an exchange
    sends during the backward pass counts as backward; `exchange` is the wait for the rest.

    Attributes:
        steps: the steps so far.
        rows: the rows of all ranks in these steps.
    """

    def __init__(self) -> None:
        self.steps = self.rows = 0
        self.data, self.forward, self.backward = Phase(), Phase(), Phase()
        self.exchange, self.optimizer = Phase(), Phase()
        self.evaluation, self.checkpoint = Phase(), Phase()

    def end_step(self, rows: int) -> None:
        """Count a step, and its rows on all ranks."""
        self.steps += 1
        self.rows += rows

    def record(self) -> None:
        """Record each phase as a span from its first beginning to its last end."""
        epoch = time.time() - time.perf_counter()
        for name, phase in vars(self).items():
            if isinstance(phase, Phase) and phase.count:
                start, end = (round((epoch + moment) * 1e9) for moment in (phase.began, phase.ended))
                seconds, count = round(phase.seconds, 4), phase.count
                tracing.add(name, start, end, seconds=seconds, count=count, steps=self.steps, rows=self.rows)
