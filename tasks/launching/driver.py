"""The process that holds the ranks of a training: `python -m tasks.launching.driver FOLDER RANKS`.

The ranks run on this machine, or in Spark's executors where runtime.ranks_on says so.

It waits for its children and handles signals, and Horovod's launcher on Spark prints to stdout, so it is a process of
its own. The driver ends its ranks when its stdin closes, which happens when the stage closes it or dies.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from include.artifacts import write_json
from include.stages import ExitCode, StageError
from tasks.launching.local import Lost, run_here
from tasks.launching.rank import JOB
from tasks.training.job import Job

LOST = "lost.json"


def main(folder: str, ranks: int) -> int:
    """Run the ranks; return 0 if all of them succeeded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the stage as well, which then closes stdin
    signal.signal(signal.SIGTERM, _stop)  # Horovod's launcher on Spark replaces it
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        lost = _run(folder, ranks)
    except StageError as error:  # of Spark: no Java, no master, too few slots
        write_json(Path(folder, "rank-none.json"), {"rank": None, "exit_code": error.exit_code, "message": str(error)})
        return 1
    if lost is not None:
        write_json(Path(folder, LOST), lost._asdict())
        return 1
    return 0


def _run(folder: str, ranks: int) -> Lost | None:
    experiment = Job.read(Path(folder, JOB)).experiment
    if experiment.runtime.ranks_on == "spark":
        from tasks.launching.on_spark import run_on_spark

        return run_on_spark(folder, ranks, experiment)
    return run_here(["-m", "tasks.launching.rank", folder], f"localhost:{ranks}")


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(ExitCode.STOPPED)  # which ends the ranks on the way


def _end_with_stdin() -> None:
    os.read(0, 1)  # sys.stdin has a lock, which processes that are forked would wait for
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
