"""Small trainings of two ranks with every lossy compressor, in one launch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tasks.training.job import Job
from tests.tasks.communication.compression.samples import KINDS
from tests.tasks.launching.jobs import lines, losses, make_job
from tests.tasks.launching.ranks import on_ranks

pytestmark = pytest.mark.long


def train_with_each(folder: Path) -> None:
    """Every compressor in turn."""
    from tasks.training.factory import build_trainer

    for kind in KINDS:
        build_trainer(Job.read(folder / f"{kind}.json"), stopping=lambda: False).run()


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("trainings")
    found = {}
    for kind in KINDS:
        job = make_job(
            folder, {"compression": kind, "topk_share": 0.05, "powersgd_rank": 2},
            epochs=6, evaluations=1, patience=0, learning_rate=3e-3, ranks=2,
        )  # fmt: skip
        job.write(folder / f"{kind}.json")
        found[kind] = job.output
    on_ranks(train_with_each, 2, folder)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns(outputs: dict[str, Path], kind: str) -> None:
    learned = losses(outputs[kind])
    assert np.mean(learned[-5:]) < 0.7 * np.mean(learned[:5])


@pytest.mark.parametrize(("kind", "ratio"), [("fp16", 2), ("int8", 3.85), ("int4", 7.5), ("onebit", 25), ("topk", 9.9)])
def test_the_matrices_bytes_are_counted_step_by_step(outputs: dict[str, Path], kind: str, ratio: float) -> None:
    sent = [line["bytes_matrices"] for line in lines(outputs[kind]) if "loss" in line]
    plain = [line["bytes_matrices"] for line in lines(outputs["none"]) if "loss" in line]
    assert sent[:5] == plain[:5]  # a tenth of 48 steps is five
    assert sent[-1] * ratio <= plain[-1]


def test_the_summary_shows_what_was_sent_beside_a_dense_exchange(outputs: dict[str, Path]) -> None:
    sent = {kind: json.loads((outputs[kind] / "training.json").read_text())["bytes"] for kind in KINDS}
    assert sent["none"]["all"] == sum(sent["none"][kind] for kind in ("embeddings", "matrices", "rest"))
    assert len({values["dense"] for values in sent.values()}) == 1
    assert sent["onebit"]["all"] < sent["int8"]["all"] < sent["none"]["all"] <= 1.1 * sent["none"]["dense"]
