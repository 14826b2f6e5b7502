"""The process that holds Horovod's launcher: `python -m tasks.launching.driver FOLDER RANKS`.

The ranks run on this machine, or in Spark's executors where runtime.ranks_on says so.

Horovod's launcher handles the signals of its process and prints to stdout, so the stage runs it in a process of its
own. The driver ends its ranks when its stdin closes, which happens when the stage closes it or dies.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from pathlib import Path

from include.artifacts import write_json
from include.stages import StageError
from tasks.launching import polling
from tasks.launching.rank import JOB, run_rank
from tasks.training.job import Job

LOST = "lost.json"


def main(folder: str, ranks: int) -> int:
    """Run the ranks; return 0 if all of them succeeded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the stage as well, which then closes stdin
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    experiment = Job.read(Path(folder, JOB)).experiment
    try:
        if experiment.runtime.ranks_on == "spark":
            from tasks.launching.on_spark import run_on_spark

            run_on_spark(folder, ranks, experiment)
        else:
            _run_here(folder, ranks)
    except StageError as error:  # of Spark: no Java, no master, too few slots
        write_json(Path(folder, "rank-none.json"), {"rank": None, "exit_code": error.exit_code, "message": str(error)})
        return 1
    except RuntimeError as error:
        first = re.search(r"Process name: (\d+)\s+Exit code: (-?\d+)", str(error))
        if first is None:
            raise
        write_json(Path(folder, LOST), {"rank": int(first[1]), "exit_code": int(first[2])})
        return 1
    return 0


def _run_here(folder: str, ranks: int) -> None:
    import horovod.runner

    # Without a name Horovod would take any of the local network interfaces.
    horovod.runner.run(
        run_rank, (folder, polling.chosen()), num_proc=ranks, use_gloo=True, network_interfaces=["lo"],
        disable_cache=True,
    )  # fmt: skip


def _end_with_stdin() -> None:
    os.read(0, 1)  # sys.stdin has a lock, which processes that Horovod forks would wait for
    os.kill(os.getpid(), signal.SIGTERM)  # Horovod then ends its ranks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
