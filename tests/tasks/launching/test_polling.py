"""How often Horovod's thread looks for tensors."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tasks.launching import tuning
from tests.tasks.launching.ranks import on_ranks


def test_the_thread_leaves_the_cpu_to_its_rank(tmp_path: Path) -> None:
    on_ranks(_idle, 2, tmp_path)


def _idle(folder: Path) -> None:
    """With 0 ms, the thread takes most of a CPU."""
    before = time.process_time()
    time.sleep(1)
    assert time.process_time() - before < 0.3


@pytest.mark.parametrize(("gpus", "cycle"), [(0, tuning.ON_CPU), (2, tuning.ON_GPU)])
def test_a_cycle_is_longer_where_the_thread_shares_a_cpu_with_its_rank_unless_the_user_has_set_one(
    monkeypatch: pytest.MonkeyPatch, gpus: int, cycle: str
) -> None:
    monkeypatch.delenv(tuning.CYCLE, raising=False)
    tuning.set_cycle(gpus)
    assert os.environ[tuning.CYCLE] == cycle
    monkeypatch.setenv(tuning.CYCLE, "2.5")
    tuning.set_cycle(gpus)
    assert os.environ[tuning.CYCLE] == "2.5"
