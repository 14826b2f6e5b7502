"""The tables of the check."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.gpu.cases import Case
from benchmarks.gpu.turns import Turn
from benchmarks.tables import spread, table

Measured = Mapping[str, Sequence[Turn]]
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Work:
    """What a pass over the rows takes.

    Attributes:
        rows: their number.
        tokens: of all rows, without padding.
        operations: see rows.operations.
        limit: operations a second that the device could do; None: it is not known.
    """

    rows: int
    tokens: int
    operations: float
    limit: float | None

    def share(self, rows_per_second: float) -> str:
        """The part of the limit, in percent, that is used for what the rows need; nothing if the limit is not known."""
        if self.limit is None:
            return ""
        return f"{100 * rows_per_second / self.rows * self.operations / self.limit:.1f}"


def main_table(cases: Sequence[Case], measured: Measured, work: Work, base: str, rival: str) -> str:
    """Speed and memory of all cases, compared with those of `base`, and as many times as fast as `rival`."""
    header = (
        "configuration", "rows/s", "tokens/s", "% of the bf16 limit", "peak memory, MB", "throughput, +%", "memory, -%",
        "papers: throughput, +%", "papers: memory, -%", f"times {rival}",
    )  # fmt: skip
    lines = []
    for case in cases:
        if case.name not in measured:
            lines.append([case.name, NOT_MEASURED, *[""] * (len(header) - 2)])
            continue
        turns = measured[case.name]
        speed, peak = _speed(turns), max(turn.memory for turn in turns)
        lines.append(
            [
                case.name,
                spread([turn.rows_per_second for turn in turns]),
                f"{speed / work.rows * work.tokens:,.0f}",
                work.share(speed),
                f"{peak / 1e6:,.0f}",
                *_beside_base(turns, measured.get(base)),
                *([f"{figure:.1f}" for figure in case.papers] if case.papers else ["", ""]),
                ratio(turns, measured.get(rival)),
            ]
        )
    return table(header, lines)


def sizes_table(measured: Mapping[int, Measured], work: Work, names: Sequence[str]) -> str:
    """Rows a second of some cases by batch size, and the ratio of the first to the last of them."""
    lines = []
    for size, cases in sorted(measured.items()):
        speeds = [_speeds(cases.get(name)) for name in names]
        first, last = (cases.get(name) for name in (names[0], names[-1]))
        used = work.share(_speed(first)) if first else ""
        lines.append([f"{size:,}", *speeds, used, ratio(first, last) if first else ""])
    header = ("rows per step", *(f"{name}, rows/s" for name in names), "% of the bf16 limit", f"times {names[-1]}")
    return table(header, lines)


def ratio(turns: Sequence[Turn], rival: Sequence[Turn] | None) -> str:
    """How many times as fast, round by round: the median, lowest and highest."""
    if not rival:
        return ""
    return spread([one.rows_per_second / other.rows_per_second for one, other in zip(turns, rival, strict=True)], 2)


def _beside_base(turns: Sequence[Turn], base: Sequence[Turn] | None) -> list[str]:
    if not base:
        return ["", ""]
    faster = statistics.median(
        one.rows_per_second / other.rows_per_second for one, other in zip(turns, base, strict=True)
    )
    memory = max(turn.memory for turn in turns) / max(turn.memory for turn in base)
    return [f"{100 * (faster - 1):+.1f}", f"{100 * (1 - memory):.1f}"]


def _speeds(turns: Sequence[Turn] | None) -> str:
    return spread([turn.rows_per_second for turn in turns]) if turns else NOT_MEASURED


def _speed(turns: Sequence[Turn]) -> float:
    return statistics.median(turn.rows_per_second for turn in turns)
