"""A worker of the GPU check that does what the name of its folder says, for test_gpu."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from benchmarks.gpu.turns import Told, Turn


def main(does: str) -> None:
    """Answer, unless it is time to fail or to hang."""
    told = Told()
    if does == "fails at once":
        raise ValueError("no memory")
    for number, _ in enumerate(told, 1):
        if does == "fails later" and number == 2:
            raise ValueError("no memory left")
        if does == "hangs":
            time.sleep(600)
        told.answer(Turn(rows=number, seconds=1.0, memory=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]).name)
