"""A rank that neither computes nor ends, as SIGSTOP or a hanging disk leave it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil
import pytest

from include.stages import Transient
from tasks.launching import launch as launching
from tests.tasks.launching.jobs import make_job
from tests.tasks.launching.ranks import is_rank

pytestmark = pytest.mark.long


def test_a_frozen_rank_ends_the_training_as_a_lost_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"):
        monkeypatch.setitem(launching.LIMITS, limit, "10")
    job = make_job(tmp_path, ranks=2, epochs=100, evaluations=1, patience=0)
    frozen: list[psutil.Process] = []

    def freeze() -> None:
        while not (job.folder / "metrics.jsonl").exists():
            time.sleep(0.02)
        rank = next(process for process in psutil.Process().children(recursive=True) if is_rank(process, 1))
        rank.suspend()
        frozen.append(rank)

    threading.Thread(target=freeze, daemon=True).start()
    with pytest.raises(Transient, match="rank 0 got no answer from another rank: run the stage again"):
        launching.launch(job)
    assert not frozen[0].is_running() or frozen[0].status() == psutil.STATUS_ZOMBIE
