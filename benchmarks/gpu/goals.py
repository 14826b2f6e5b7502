"""What a GPU such as the H200 is to reach with the engine, and whether it does."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.gpu.cases import COMPILED, ONE_GPU, Case
from benchmarks.gpu.report import NOT_MEASURED, Measured
from benchmarks.tables import table

ROWS_PER_SECOND = 20_000
TIMES_TRAINER = 4
MEMORY = 60  # percent below base, of the papers' full row


def goals_table(cases: Sequence[Case], measured: Measured) -> str:
    """Return what is to be reached, what was found, and whether it is met.

    Args:
        cases: the first one is the papers' base, and the last one with figures of the papers is their full row.
        measured: the rounds of those that could be measured.
    """
    base, full = cases[0], [case for case in cases if case.papers][-1]
    speed = _fastest(measured, [ONE_GPU, COMPILED])
    fastest = _fastest(measured, [case for case in cases if case.trainer])
    memory, before = _memory(measured, full), _memory(measured, base)
    saved = 100 * (1 - memory / before) if memory and before else None
    return table(
        ("goal", "asked for", "found", ""),
        [
            _line(f"rows/s, {ONE_GPU.name}, compiled or not", ROWS_PER_SECOND, speed),
            _line("times the fastest of Trainer's", TIMES_TRAINER, speed / fastest if speed and fastest else None),
            _line(f"memory, -%, {full.name}", MEMORY, saved),
        ],
    )


def _line(goal: str, asked: float, found: float | None) -> list[str]:
    if found is None:
        return [goal, f"{asked:,}", "", NOT_MEASURED]
    return [goal, f"{asked:,}", f"{found:,.1f}", "met" if found >= asked else "missed"]


def _fastest(measured: Measured, cases: Sequence[Case]) -> float | None:
    rounds = [turns for case in cases if (turns := measured.get(case.name))]
    return max((statistics.median(turn.rows_per_second for turn in turns) for turns in rounds), default=None)


def _memory(measured: Measured, case: Case) -> int | None:
    return max((turn.memory for turn in measured.get(case.name, ())), default=None)
