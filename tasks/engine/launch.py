"""Starting a training's ranks, and saying what became of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from include.stages import BadInput, ExitCode, Transient
from tasks.engine.driver import LOST
from tasks.engine.job import Job
from tasks.engine.rank import JOB, train

#: What Horovod's launcher puts before a rank's lines. Only rank 0 logs more than errors, so nothing is lost.
_RANK_PREFIX = re.compile(r"^\[\d+\]<std(?:out|err)>:", re.MULTILINE)

ROOT = Path(__file__).parents[2]
#: A rank that says nothing must not stop the others for ever: both end the run within a minute.
LIMITS = {
    "HOROVOD_GLOO_TIMEOUT_SECONDS": "30",
    "HOROVOD_STALL_CHECK_TIME_SECONDS": "20",
    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "40",
}


def launch(job: Job) -> None:
    """Train with the experiment's ranks: one in this process, more in processes of their own on this machine.

    Raises BadInput as a rank did, and Transient, naming the rank, when one is lost.
    """
    ranks = job.experiment.training.ranks
    if ranks == 1:
        train(job)
        return
    with tempfile.TemporaryDirectory(prefix="spark-bert-ranks-") as folder:
        job.write(Path(folder, JOB))
        if _run_driver(folder, ranks):
            _explain(Path(folder))


def _run_driver(folder: str, ranks: int) -> int:
    command = [sys.executable, "-m", "tasks.engine.driver", folder, str(ranks)]
    # stdout belongs to the stage's result line
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment(ranks)
    )
    assert process.stdin and process.stdout
    try:
        _pass_on(process.stdout.fileno())
        return process.wait()
    finally:
        process.stdin.close()  # ends the ranks, should they still run
        process.wait()


def _pass_on(ranks: int) -> None:
    """What the ranks log, as they log it: in pieces, since a progress bar ends no line."""
    while piece := os.read(ranks, 65536):
        sys.stderr.write(_RANK_PREFIX.sub("", piece.decode(errors="replace")))
        sys.stderr.flush()


def _environment(ranks: int) -> dict[str, str]:
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **LIMITS, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": path}


def _explain(folder: Path) -> None:
    """Raise what the ranks left behind: an error's own words, else which one went first."""
    errors = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("rank-*.json"))]
    if errors:
        rank, code, message = errors[0]["rank"], errors[0]["exit_code"], errors[0]["message"]
        if code == ExitCode.BAD_INPUT:  # which all ranks find alike
            raise BadInput(message)
        if code == ExitCode.TRANSIENT:
            raise Transient(f"rank {rank}: {message}")
        raise RuntimeError(f"rank {rank} failed:\n{message}")
    if not (folder / LOST).is_file():
        raise Transient("Horovod's launcher ended without a word: its last lines are above")
    lost = json.loads((folder / LOST).read_text(encoding="utf-8"))
    if lost["exit_code"] == ExitCode.TRANSIENT:
        raise Transient(f"rank {lost['rank']} had no answer from another rank: run the stage again")
    raise Transient(f"rank {lost['rank']} was lost (exit code {lost['exit_code']}): run the stage again")
