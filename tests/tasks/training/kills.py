"""Trainings that are killed: `python -m tests.tasks.training.kills PLAN`, for the tests and the benchmark of resuming.

The plan is a JSON file: a job, and a list of kills to let befall it one after the other, each after so many calls of
functions of the operating system, or after so many seconds; then it runs to its end. Every attempt is a fork of this
process, which has everything imported, so that it costs a part of a second.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.launching.rank import train
from tasks.training import factory  # noqa: F401  # imported once, for all attempts
from tasks.training.job import Job, checkpoints

#: Every call of these is a moment between two states of the disk.
CALLS = ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink")


def main(plan: Path) -> None:
    """Do what the plan says; write beside it, as <plan>.done, how each attempt ended."""
    values = json.loads(plan.read_text(encoding="utf-8"))
    job = Job.read(Path(values["job"]))
    done: list[dict[str, Any]] = []
    for kill in [*values["kills"], {}]:
        done.append(_attempt(job, **kill))
        if done[-1]["code"] == 0:  # it reached its end before its kill
            break
    plan.with_suffix(".done").write_text(json.dumps(done), encoding="utf-8")


def _attempt(job: Job, calls: int = 0, seconds: float = 0) -> dict[str, Any]:
    began = max(checkpoints(job.folder), default=0)
    child = os.fork()
    if child == 0:
        _train(job, calls, seconds)
    _, status = os.waitpid(child, 0)
    left = sorted(path.name for path in job.folder.iterdir()) if job.folder.exists() else []
    return {"calls": calls, "seconds": seconds, "code": os.waitstatus_to_exitcode(status), "began": began, "left": left}


def _train(job: Job, calls: int, seconds: float) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    if calls:
        _kill_at(calls)
    if seconds:
        threading.Thread(target=_kill_after, args=(seconds,), daemon=True).start()
    code = 1
    try:
        train(job, job.output / "never")
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)


def _kill_at(number: int) -> None:
    """Kill this process just before its call of this number."""
    left = [number]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return called

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def _kill_after(seconds: float) -> None:
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
