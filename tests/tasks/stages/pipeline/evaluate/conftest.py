from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.scoring.scored import ScoredSplit
from tests.tasks.stages.pipeline.evaluate.made_up import made_up


@pytest.fixture
def sst2() -> ScoredSplit:
    return made_up("SST-2")


@pytest.fixture
def stsb() -> ScoredSplit:
    return made_up("STS-B")


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """What train logs: a loss at every step, the dev metrics now and then."""
    lines: list[dict[str, float]] = [{"step": step, "loss": 1 / step} for step in range(1, 101)]
    lines += [
        {"step": 50, "accuracy": 0.8, "pearson": 0.7, "dev_loss": 0.6},
        {"step": 100, "accuracy": 0.9, "pearson": 0.8, "dev_loss": 0.5},
    ]
    file = tmp_path / "history" / "metrics.jsonl"
    file.parent.mkdir()
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file
