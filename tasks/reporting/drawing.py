"""What the stages' plots have in common. Figures are made without pyplot's global state."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Names in a plot come from people's data: a dollar sign in them is a dollar sign, not the start of a formula.
matplotlib.rcParams["text.parse_math"] = False
INK, GREY, BLUE, RED = "#2b2b2b", "#9a9a9a", "#31688e", "#c0504d"


def save(figure: Figure, file: Path) -> None:
    """Write a PNG that is the same every time."""
    figure.savefig(file, dpi=160, metadata={"Software": None})


def new_axes(title: str, x: str, y: str, size: tuple[float, float]) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; its size in inches."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    dress(axes, title, x, y)
    return figure, axes


def dress(axes: Axes, title: str, x: str, y: str) -> None:
    """Give axes their title, labels and colours."""
    axes.set_title(title, loc="left", fontsize=10.5, color=INK)
    axes.set_xlabel(x, color=INK, fontsize=9)
    axes.set_ylabel(y, color=INK, fontsize=9)
    axes.tick_params(colors=INK, labelsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
