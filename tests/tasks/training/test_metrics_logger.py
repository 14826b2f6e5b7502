from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np

from tasks.training.job import METRICS
from tasks.training.metrics_logger import MetricsLogger
from tasks.training.sampler import RankBatch


def test_a_checkpoint_replaces_what_was_written_since(tmp_path: Path) -> None:
    logger = MetricsLogger(tmp_path, steps=2, terminal=False)
    logger.load_state_dict({"written": "written before\n" * 3, "step": 2})
    logger.load_state_dict({"written": "kept\n", "step": 1})
    logger.close()
    assert (tmp_path / METRICS).read_bytes() == b"kept\n"


def test_a_line_says_when_it_was_written(tmp_path: Path) -> None:
    logger = MetricsLogger(tmp_path, steps=8, terminal=False)
    batch = RankBatch(4, 0.5, np.zeros(1, np.int64), 1.0, rows=1, parts=1)
    before = time.time()
    logger.write(batch, {"accuracy": math.nan, "dev_loss": 0.5}, {"shares": {"a": 0.25, "b": 0.75}})
    logger.close()
    line = json.loads((tmp_path / METRICS).read_text())
    assert before - 0.001 <= line.pop("time") <= time.time() + 0.001
    assert line == {"step": 4, "epoch": 0.5, "accuracy": None, "dev_loss": 0.5, "shares": {"a": 0.25, "b": 0.75}}
