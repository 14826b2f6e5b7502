"""A stage's report: one HTML file that needs nothing beside it. The look is page.html.j2's, the content a stage's."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: Path, **values: Any) -> str:
    """The HTML of a template that extends page.html.j2. Every value is escaped."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["figure"] = figure
    return environment.get_template(template.name).render(**values)


def figure(value: float | None) -> str:
    """A metric as people compare them: four decimals."""
    return "undefined" if value is None or not math.isfinite(value) else f"{value:.4f}"


def inline(file: Path) -> str:
    """A PNG as the address of an image in the page."""
    return "data:image/png;base64," + base64.b64encode(file.read_bytes()).decode("ascii")
