"""The training curves, out of the JSON lines that train wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Curves:
    """Training loss at steps, and the dev metric at the steps where it was measured."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    dev_steps: list[int] = field(default_factory=list)
    dev_metrics: list[float] = field(default_factory=list)


def read(file: Path, metric: str) -> Curves:
    """The curves of a metrics.jsonl: lines with a loss, and lines with the metric of the dev split."""
    curves = Curves()
    for text in file.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line.get(metric) is not None:
            curves.dev_steps.append(line["step"])
            curves.dev_metrics.append(line[metric])
        elif line.get("loss") is not None:
            curves.steps.append(line["step"])
            curves.losses.append(line["loss"])
    return curves
