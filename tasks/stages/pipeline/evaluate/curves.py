"""The training curves, read from the metrics.jsonl of train."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Curves:
    """The training loss, and the loss and the metric of the dev split, each with the steps of its values."""

    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    dev_steps: list[int] = field(default_factory=list)
    dev_metrics: list[float] = field(default_factory=list)
    dev_loss_steps: list[int] = field(default_factory=list)
    dev_losses: list[float] = field(default_factory=list)


def read(file: Path, metric: str) -> Curves:
    """Read the curves from a metrics.jsonl.

    Args:
        file: The file, whose lines have either the training loss or the results on the dev split.
        metric: The name of the dev metric to read.
    """
    curves = Curves()
    for text in file.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        for value, steps, values in (
            (line.get("loss"), curves.steps, curves.losses),
            (line.get(metric), curves.dev_steps, curves.dev_metrics),
            (line.get("dev_loss"), curves.dev_loss_steps, curves.dev_losses),
        ):
            if value is not None:  # null stands for a value that was not finite
                steps.append(line["step"])
                values.append(value)
    return curves
