"""The command line of the stages, in a process that kills itself at a point of the first batch that it labels.

`python -m benchmarks.streaming.killed POINT stream ...`, where the point is one of POINTS, or the number of
seconds after which the process kills itself wherever it is.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from threading import Timer
from typing import Any

from tasks.__main__ import main
from tasks.stages.labeling.stream import batches, labeler
from tasks.stages.labeling.stream.batches import Batches
from tasks.stages.labeling.stream.labeler import BatchLabeler

#: Name to the object, its function, and whether the process is killed before it is called or after.
POINTS: dict[str, tuple[Any, str, str]] = {
    "the batch has begun": (BatchLabeler, "_label", "before"),
    "the parts are written": (BatchLabeler, "_tally", "after"),
    "the tally is written": (Batches, "commit", "before"),
    "the rows set aside are joined": (batches, "_join_aside", "after"),
    "the manifest is written": (batches, "write_json", "after"),
    "the batch is committed": (Batches, "commit", "after"),
    "before the windows": (labeler, "close_windows", "before"),
    "before Spark's own commit": (labeler, "close_windows", "after"),
}


def kill() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def killing(function: Callable[..., Any], when: str) -> Callable[..., Any]:
    """Return a function that kills the process before the call or after it."""

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if when == "after":
            function(*arguments, **keywords)
        kill()

    return call


if __name__ == "__main__":
    point = sys.argv[1]
    if point in POINTS:
        owner, name, when = POINTS[point]
        setattr(owner, name, killing(getattr(owner, name), when))
    else:
        Timer(float(point), kill).start()
    sys.exit(main(sys.argv[2:]))
