"""Ranks that have no folder in common with their driver or with one another, on this machine and without Spark.

`python -m tests.tasks.launching.apart FOLDER URL` is the driver, and URL the folder in the store.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tasks.launching.driver import run_here
from tasks.launching.mirror import Places, run_staged_rank, shared_with_ranks
from tasks.launching.rank import JOB
from tasks.staging import Staging
from tasks.training.job import Job
from tasks.training.loop import Trainer
from tasks.training.sampler import RankBatch

#: The variable with the step at which rank 1 is lost, or at which rank 0 waits until it is told to stop.
LOST_AT, STOPPED_AT = "TEST_LOST_AT", "TEST_STOPPED_AT"
PLACES = "places.json"


def drive(folder: Path, url: str) -> int:
    """Run the two ranks of the job in a folder, and return the exit code of the first that failed, or 0."""
    with shared_with_ranks(Staging(url), Job.read(folder / JOB), folder) as places:
        (folder / PLACES).write_text(json.dumps(asdict(places)), encoding="utf-8")
        lost = run_here(["-m", __spec__.name, str(folder / PLACES)], "localhost:1,127.0.0.1:1")
    return lost.exit_code if lost else 0


def be_rank(places: Places) -> None:
    """Train as a rank in a folder of its own."""
    whole_step, rank = Trainer.step, os.environ["HOROVOD_RANK"]

    def step(self: Trainer, batch: RankBatch) -> bool:
        if rank == "1" and str(batch.step) == os.environ.get(LOST_AT):
            os.kill(os.getpid(), signal.SIGKILL)
        while rank == "0" and str(batch.step) == os.environ.get(STOPPED_AT) and not self.stopping():
            time.sleep(0.1)
        return whole_step(self, batch)

    Trainer.step = step  # type: ignore[method-assign]
    run_staged_rank(places, secret="")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(drive(Path(sys.argv[1]), sys.argv[2]))
    told = Places(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    own = Path(sys.argv[1]).with_name(f"executor-{os.environ['HOROVOD_RANK']}")
    own.mkdir(exist_ok=True)
    os.chdir(own)
    be_rank(told)
