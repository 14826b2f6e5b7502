"""Tables and plots of a study."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure

from benchmarks.scaling.compute import Profile
from benchmarks.scaling.model import Interval
from benchmarks.scaling.outlook import LINKED, Break, Extrapolated
from benchmarks.scaling.study import Row
from benchmarks.scaling.wire import GIGABIT, Wire
from benchmarks.tables import spread, table

DRAWN_LINKS = 0.01, 1000  # Gbit/s; what is slower or faster is drawn there

SPEED_UP, EFFICIENCY, NODES = 6.3, 78.7, 8  # that the papers report
PAPERS = (
    f"The papers report a speed-up of {SPEED_UP} on {NODES} nodes, an efficiency of {EFFICIENCY} %, on a network that "
    "they do not describe. Their rows per second contradict it: an epoch of 67,349 rows in 9.2 minutes is 122 rows/s, "
    "not 1,842, and 1,842 rows/s, said to be 7.1 times one machine, would leave one machine 4.3 minutes for an epoch, "
    "not 58."
)


def wire_table(wire: Wire) -> str:
    """What was fitted to collectives between two ranks."""
    lines = [
        [f"{kind}, {place}", f"{1e3 * line.latency:.2f}", f"{line.overhead:.3f}", f"{1e9 * line.cost:.2f}"]
        for place, lines in (("between hosts", wire.across), ("inside a host", wire.inside))
        for kind, line in lines.items()
    ]
    return table(["collective", "latency, ms", "bits on the wire per bit", "besides, ms per MB"], lines)


def compute_table(profiles: Mapping[str, Profile]) -> str:
    """What one rank computes in a step."""
    lines = [
        [
            size,
            f"{one.parameters / 1e6:.1f}",
            f"{len(one.buckets)}",
            f"{1e3 * one.ready[0]:,.0f}",
            f"{1e3 * one.backward:,.0f}",
            f"{1e3 * one.step:,.0f}",
        ]
        for size, one in profiles.items()
    ]
    header = ["encoder", "weights, millions", "buckets", "first bucket ready, ms", "backward ends, ms", "step ends, ms"]
    return table(header, lines)


def rows_table(rows: Iterable[Row]) -> str:
    """Beside each measured step what had been predicted for it, in milliseconds without the dilation."""
    header = [
        "exchange, ranks", "time slowed down by", "predicted, MB", "measured, MB", "predicted, ms", "measured, ms",
        "prediction is off by, %",
    ]  # fmt: skip
    lines = [
        [
            f"{row.layout.label}, {row.layout.ranks}",
            f"{row.measured.dilation:g}",
            f"{row.megabytes:.2f}",
            f"{row.measured.received / 1e6:.2f}",
            _interval(row.predicted, 1e3, 0),
            spread([1e3 * seconds for seconds in row.measured.seconds]),
            f"{100 * row.error:+.1f}",
        ]
        for row in rows
    ]
    return table(header, lines)


def outlook_table(found: Iterable[Extrapolated]) -> str:
    """Efficiency in percent by nodes and link, with the papers' figure beside it."""
    lines: defaultdict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for one in found:
        label = f"{one.size}, {one.layout.label}, {one.layout.hosts:,} nodes"
        text = f"{_interval(one.efficiency, 100, 1)}, latency {100 * one.latency:.0f}"
        lines[label, one.layout.hosts][f"predicted, {one.gigabits} Gbit/s"] = text
    presets = list(next(iter(lines.values())))
    papers = {NODES: f"{EFFICIENCY} ({SPEED_UP}x)"}
    return table(
        ["encoder, exchange", *presets, "papers"],
        ([label, *texts.values(), papers.get(nodes, "")] for (label, nodes), texts in lines.items()),
    )


def breaks_table(breaks: Iterable[Break]) -> str:
    """The links below which a compression pays, in Gbit/s."""
    lines: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for one in breaks:
        lines[one.compression][f"predicted, {one.size}"] = _interval(one.rate, 1 / GIGABIT, 2)
    sizes = list(next(iter(lines.values())))
    return table(["compression, Gbit/s", *sizes], ([name, *texts.values()] for name, texts in lines.items()))


def draw_scaling(rows: Sequence[Row], alone: float, found: Sequence[Extrapolated], file: Path) -> None:
    """Draw efficiency by ranks: measured points, predicted lines, and the outlook at 1 Gbit/s if there is one."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    by_label: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_label[row.layout.label].append(row)
    for label, group in by_label.items():
        ranks = [row.layout.ranks for row in group]
        predicted = [100 * alone / row.predicted.fitted for row in group]
        (line,) = axes.plot(ranks, predicted, ".-", linewidth=1, markersize=3, label=f"{label}: predicted")
        points = [100 * alone / row.measured.median for row in group]
        axes.plot(ranks, points, "o", color=line.get_color(), markersize=5)
        beyond = [one for one in found if one.layout.label == label and one.gigabits == 1]
        further = [one for one in beyond if one.layout.ranks >= max(ranks)]
        axes.plot(
            [one.layout.ranks for one in further],
            [100 * one.efficiency.fitted for one in further],
            ":", color=line.get_color(),
        )  # fmt: skip
    axes.plot([], [], "o", color="grey", label="measured")
    if found:
        axes.plot([], [], ":", color="grey", label="predicted, nothing measured")
    axes.plot([NODES], [EFFICIENCY], "*", color="black", markersize=11, label="papers, on an unknown network")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="ranks", ylabel="efficiency, %", ylim=(0, 102), title="Links of 1 Gbit/s")
    _save(figure, axes, file)


def draw_breaks(breaks: Sequence[Break], worst: float, file: Path) -> None:
    """Draw, by size of the encoder, the link below which each compression pays."""
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    by_method: defaultdict[str, list[Break]] = defaultdict(list)
    for one in breaks:
        by_method[one.compression].append(one)
    for number, (method, group) in enumerate(by_method.items()):
        places = [place + 0.08 * (number - len(by_method) / 2) for place in range(len(group))]
        rates = [(one.rate.low, one.rate.fitted, one.rate.high) for one in group]
        low, middle, high = np.clip(np.array(rates).T / GIGABIT, *DRAWN_LINKS)
        axes.errorbar(places, middle, yerr=[middle - low, high - middle], fmt="o", capsize=2, label=method)
    sizes = [one.size for one in next(iter(by_method.values()))]
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlim(-0.5, len(sizes) - 0.5)
    title = f"Predicted for {LINKED} nodes, by a model that was off by up to {100 * worst:.0f} %"
    axes.set(xticks=range(len(sizes)), xticklabels=sizes, ylabel="compression pays below, Gbit/s", title=title)
    _save(figure, axes, file)


def _save(figure: Any, axes: Any, file: Path) -> None:
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=100)


def _interval(one: Interval, factor: float, digits: int) -> str:
    middle, low, high = (f"{factor * value:,.{digits}f}" for value in (one.fitted, one.low, one.high))
    return f"{middle} ({low} to {high})"
