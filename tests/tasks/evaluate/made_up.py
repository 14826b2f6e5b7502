"""Made-up scored splits: three words to forty, some of them wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from include.glue import TASKS
from tasks.metrics import Array
from tasks.scored import Scored

FACTS: dict[str, dict[str, Any]] = {
    "Training": {"encoder": "all-MiniLM-L6-v2", "seed": 1, "epochs": 3.0, "ranks": 2},
    "Data and provenance": {"train artifact": "0123456789abcdef", "code revision": "f00ba4"},
}


def made_up(name: str, rows: int = 120) -> Scored:
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
    return Scored(task, np.arange(rows), labels, logits.astype(np.float32), sentences)
