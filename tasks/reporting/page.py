"""Render a stage's report as one self-contained HTML file. Its layout is page.html.j2; the stage adds the content."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: Path, **values: Any) -> str:
    """Return the HTML of a template that extends page.html.j2. All values are escaped."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["figure"] = figure
    return environment.get_template(template.name).render(**values)


def figure(value: float | None) -> str:
    """Format a metric with four decimals; None and values that are not finite become "undefined"."""
    return "undefined" if value is None or not math.isfinite(value) else f"{value:.4f}"


def inline(file: Path) -> str:
    """Return a PNG file as a data URL, so that the page contains the image."""
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode("ascii")
