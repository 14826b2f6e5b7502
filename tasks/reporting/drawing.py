"""The common style of the stages' plots. Figures are created without pyplot's global state."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Names in a plot come from the user's data, so a dollar sign must not start a formula.
matplotlib.rcParams["text.parse_math"] = False
INK, GRAY, BLUE, RED = "#2b2b2b", "#9a9a9a", "#31688e", "#c0504d"


def save(figure: Figure, file: Path) -> None:
    """Write a figure as a PNG file whose bytes are reproducible."""
    figure.savefig(file, dpi=160, metadata={"Software": None})


def new_axes(title: str, x: str, y: str, size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Create a figure of this width and height in inches, with one pair of axes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    style_axes(axes, title, x, y)
    return figure, axes


def style_axes(axes: Axes, title: str, x: str, y: str) -> None:
    """Set the title, the labels and the colors of axes."""
    axes.set_title(title, loc="left", fontsize=10.5, color=INK)
    axes.set_xlabel(x, color=INK, fontsize=9)
    axes.set_ylabel(y, color=INK, fontsize=9)
    axes.tick_params(colors=INK, labelsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRAY)
