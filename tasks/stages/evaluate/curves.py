"""The training curves, out of the JSON lines that train wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Curves:
    """Training loss at steps; loss and metric of the dev split at the steps where they were measured."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    dev_steps: list[int] = field(default_factory=list)
    dev_metrics: list[float] = field(default_factory=list)
    dev_loss_steps: list[int] = field(default_factory=list)
    dev_losses: list[float] = field(default_factory=list)


def read(file: Path, metric: str) -> Curves:
    """The curves of a metrics.jsonl: lines with a loss, and lines about the dev split."""
    curves = Curves()
    for text in file.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        for value, steps, values in (
            (line.get("loss"), curves.steps, curves.losses),
            (line.get(metric), curves.dev_steps, curves.dev_metrics),
            (line.get("dev_loss"), curves.dev_loss_steps, curves.dev_losses),
        ):
            if value is not None:  # null stands for what was not finite
                steps.append(line["step"])
                values.append(value)
    return curves
