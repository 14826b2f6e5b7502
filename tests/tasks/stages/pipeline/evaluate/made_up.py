"""Made-up scored splits: three words to forty, some of them wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from include.glue import TASKS
from include.named_experiments import build
from tasks.scoring.predictions import Array
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.verdict import Evidence, judge
from tasks.stages.pipeline.evaluate import report
from tasks.stages.pipeline.evaluate.rows import NOTHING, Kept, write_results
from tasks.stages.pipeline.evaluate.summary import summarize

FACTS: dict[str, dict[str, Any]] = {
    "Training": {"encoder": "all-MiniLM-L6-v2", "seed": 1, "epochs": 3.0, "ranks": 2},
    "Data and provenance": {"train artifact": "0123456789abcdef", "code revision": "f00ba4"},
}
PROVENANCE = {"data": "tickets (classification)", "run": "manual__2026-11-22", "facts": FACTS}


def write_report(
    folder: Path,
    dev: ScoredSplit,
    heldout: ScoredSplit | None,
    history: Path,
    thresholds: Sequence[float] = (),
    kept: Kept = NOTHING,
) -> dict[str, Any]:
    """What the stage evaluate writes, with the verdict of the registered threshold; what metrics.json says."""
    summary = summarize(dev, heldout, thresholds)
    registered = dev.task.name if dev.task.name in ("SST-2", "MNLI", "STS-B") else "SST-2"
    data: dict[str, Any] = {"task": registered, "source": "glue", "path": "glue"}
    if dev.task.kind == "multilabel":
        data = {"task": "multi-label", "source": "files", "path": "x", "labels": dev.task.labels}
    experiment = build({"data": data}, "test")
    verdict = judge(experiment, Evidence(summary, dev.labels, dev.predicted), len(dev))
    write_results(folder, dev, summary, kept)
    report.write_report(folder, dev, summary, verdict, history, PROVENANCE, kept)
    return summary


def of_classes(names: Sequence[str], rows: int, right: float = 3.0) -> ScoredSplit:
    """Rows of a task of one's own with these label names, the first classes the most frequent."""
    task = dataclasses.replace(TASKS["classification"], labels=tuple(names), label_names=tuple(names))
    random, share = np.random.default_rng(2), 1 / np.arange(1, len(names) + 1)
    labels = random.choice(len(names), size=rows, p=share / share.sum())
    logits = right * np.eye(len(names))[labels] + random.normal(size=(rows, len(names)))
    return ScoredSplit(task, np.arange(rows), labels, logits, [(f"text {row}, with a comma",) for row in range(rows)])


def of_labels(names: Sequence[str], rows: int) -> ScoredSplit:
    """Rows with any number of these labels, the first ones the most frequent, with cross-fitted thresholds."""
    task = dataclasses.replace(TASKS["multi-label"], labels=tuple(names), label_names=tuple(names))
    random, share = np.random.default_rng(4), 1 / np.arange(2, len(names) + 2)
    labels = (random.random((rows, len(names))) < share).astype(int)
    logits = 2.0 * labels - 1.5 + random.normal(size=labels.shape)
    sentences = [(f"text {row}",) for row in range(rows)]
    return ScoredSplit(task, np.arange(rows), labels, logits, sentences).cross_fitted()


def made_up(name: str, rows: int = 120) -> ScoredSplit:
    """Rows of a task with logits that are mostly right; the last text holds HTML."""
    task, random = TASKS[name], np.random.default_rng(1)
    words = random.integers(3, 40, size=rows)
    texts = [f"sentence {row} {'word ' * (count - 2)}".strip() for row, count in enumerate(words)]
    texts[-1] = "<script>alert('1 & 2')</script> says \"this\""
    sentences = [(text,) * len(task.sentences) for text in texts]
    labels: Array
    if task.score_range is not None:
        labels = random.uniform(*task.score_range, size=rows)
        logits = (labels + random.normal(scale=0.6, size=rows))[:, None]
    else:
        labels = random.integers(task.outputs, size=rows)
        logits = 2.2 * np.eye(task.outputs)[labels] + random.normal(scale=1.0, size=(rows, task.outputs))
        logits[-1] = 9 * np.eye(task.outputs)[(labels[-1] + 1) % task.outputs]  # the surest mistake
    return ScoredSplit(task, np.arange(rows), labels, logits.astype(np.float32), sentences)
