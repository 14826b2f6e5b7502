"""The process that holds the ranks of a training: `python -m tasks.launching.driver FOLDER RANKS`.

It is a process of its own because it waits for its children and handles signals, and because Horovod's launcher on
Spark prints to stdout. It ends its ranks when its stdin closes, which happens when the stage closes it or dies.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from include.artifacts import write_json
from include.logs import VARIABLE
from include.stages import BadInput, ExitCode, StageError, Transient
from tasks.launching.rank import JOB, run_rank
from tasks.training.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOST = "lost.json"
#: What the variables begin with that the ranks on Spark are given.
_FORWARDED = ("HOROVOD_", "HF_", "PYTHONPATH", "GOMP_", "OMP_", VARIABLE)


class Lost(NamedTuple):
    """The rank that failed first, and its exit code, or 128 + n if signal n ended it."""

    rank: int
    exit_code: int


def main(folder: str, ranks: int) -> int:
    """Run the ranks; return 0 if all of them succeeded."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the stage as well, which then closes stdin
    # This ends the ranks on the way. Horovod's launcher on Spark replaces it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(ExitCode.STOPPED))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        job = Job.read(Path(folder, JOB))
        if job.experiment.runtime.ranks_on == "spark":
            lost = _run_on_spark(folder, ranks, job)
        else:
            lost = run_here(["-m", "tasks.launching.rank", folder], f"localhost:{ranks}")
    except StageError as error:  # of Spark: no Java, no master, too few slots
        write_json(Path(folder, "rank-none.json"), {"rank": None, "exit_code": error.exit_code, "message": str(error)})
        return 1
    if lost is not None:
        write_json(Path(folder, LOST), lost._asdict())
        return 1
    return 0


def _end_with_stdin() -> None:
    os.read(0, 1)  # sys.stdin has a lock, which processes that are forked would wait for
    os.kill(os.getpid(), signal.SIGTERM)


def run_here(command: Sequence[str], hosts: str) -> Lost | None:
    """Run Python with these arguments as every rank on this machine, and return the first one that failed, if any.

    The process must have no other children. The hosts, such as "localhost:2", are names of this machine with their
    ranks.
    """
    from tasks.launching.rendezvous import rendezvous

    ranks: list[subprocess.Popen[bytes]] = []
    with rendezvous(hosts) as environments:
        try:
            for environment in environments:
                # In sessions of their own, because a Ctrl-C is for the stage, which lets them write a checkpoint.
                rank = subprocess.Popen(
                    [sys.executable, *command],
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
                ranks.append(rank)
            return _first_failure(ranks)
        finally:
            for rank in ranks:
                rank.kill()
            for rank in ranks:
                rank.wait()


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]]) -> Lost | None:
    numbers = {process.pid: number for number, process in enumerate(ranks)}
    while numbers:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # in the order in which they end
        assert ended is not None
        number = numbers.pop(ended.si_pid)
        code = ranks[number].wait()
        if code:
            return Lost(number, code if code > 0 else 128 - code)
    return None


def _run_on_spark(folder: str, ranks: int, job: Job) -> Lost | None:
    """Run each rank as a task of a Spark job; return the first one that failed, or None.

    Horovod's services on Spark sign what they send; only the server through which ranks find one another would ask for
    no key.
    """
    import horovod.spark
    from horovod.runner import gloo_run
    from horovod.runner.common.util.timeout import TimeoutException

    from tasks.launching.rendezvous import guarded
    from tasks.spark import session

    secret, runtime = secrets.token_urlsafe(), job.experiment.runtime
    with (
        session(job.experiment, "ranks") as spark,
        _rank_on(spark, job, folder) as (run, place),
        mock.patch.object(gloo_run, "RendezvousServer", guarded(secret)),
    ):
        environment = {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED)}
        environment["OMP_NUM_THREADS"] = str(spark.conf.get("spark.task.cpus", "1"))  # a rank has the cores of its task
        try:
            horovod.spark.run(
                run,
                (place, secret),
                num_proc=ranks,
                use_gloo=True,
                env=environment,
                stdout=sys.stdout,
                stderr=sys.stderr,
                executable=spark.sparkContext.pythonExec,
            )
        except TimeoutException as error:
            raise Transient(
                f"{runtime.spark_master} did not run {ranks} ranks at once in time: "
                "give it more cores, or lower training.ranks"
            ) from error
        except KeyError as error:  # Horovod looks here for the interface that the executors have in common
            raise BadInput(
                f"the executors reach one another through their network interface {error}, and this host has no "
                "interface of that name: give the interfaces of all hosts the same name"
            ) from error
        except RuntimeError as error:
            first = re.search(r"Process name: (\d+)\s+Exit code: (-?\d+)", str(error))
            if first is None:
                raise
            return Lost(int(first[1]), int(first[2]))
    return None


@contextmanager
def _rank_on(spark: SparkSession, job: Job, folder: str) -> Iterator[tuple[Callable[[Any, str], None], Any]]:
    """Yield what an executor runs as a rank, and its first argument."""
    from tasks.spark import CODE
    from tasks.staging import staging

    with staging(spark) as staged:
        if not staged.url:  # executors see the folders of the driver under the same paths
            yield run_rank, folder
            return
        from tasks.launching.mirror import run_staged_rank, shared_with_ranks

        # Ranks are processes of their own, which Spark does not show the archive, and files in it have no path.
        archive = Path(spark.sparkContext.getConf().get("spark.local.dir", ""), CODE)
        spark.sparkContext.addArchive(f"{archive.as_uri()}#{archive.stem}")
        os.environ["PYTHONPATH"] += f"{os.pathsep}{archive.stem}"  # in the folder of the executor
        with shared_with_ranks(staged, job, Path(folder)) as places:
            yield run_staged_rank, places


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
