"""What is recommended after a comparison, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from include.named_experiments import build
from include.runs import Run
from tasks.runner import run_stage
from tasks.scoring.paired import Comparison
from tasks.search.comparison import _decided, compared
from tests.tasks.search.searches import values

_BETTER = Comparison("accuracy", 872, 0.93, 0.91, 0.02, (0.004, 0.036), 0.01)
_SAME = Comparison("accuracy", 872, 0.93, 0.92, 0.01, (-0.004, 0.024), 0.2)


@pytest.mark.parametrize(
    ("found", "seeds", "recommended", "reason"),
    [
        (_BETTER, 3, "winner", "means of 3 seeds; difference +0.0200, 95 % interval +0.0040 to +0.0360"),
        (_SAME, 3, "default", "no more than chance may do"),
        (_BETTER, 1, "default", "one seed does not show how much is chance"),
        (Comparison("pearson", 872, None, 0.91), 3, "default", "pearson is undefined for one of the models"),
    ],
)
def test_settings_are_recommended_if_chance_does_not_do_as_much(
    found: Comparison, seeds: int, recommended: str, reason: str
) -> None:
    said = _decided(found.metric, found, seeds)
    assert said[0] == recommended and reason in said[1]


def test_the_default_is_kept_if_the_winner_cannot_be_trained_again(tmp_path: Path) -> None:
    experiment, data = build(values(tmp_path / "data"), "the test's experiment"), Run(tmp_path / "runs" / "tune")
    run_stage("validate", experiment, data)
    best = {"default": False, "values": {"training.batch_size": 4096}}
    found = compared({"search": "one", "metric": "accuracy", "best": 0, "trials": [best]}, experiment, data)
    assert found["recommended"] == "default" and found["seeds"] == [] and found["p"] is None
    assert found["winner"] == {"runs": [], "values": [], "mean": None}
    assert "winner's settings and another seed has failed: " in found["reason"]
    assert "only 80 rows are left to train on" in found["reason"]
    assert found["experiment"]["training"]["batch_size"] == 8
