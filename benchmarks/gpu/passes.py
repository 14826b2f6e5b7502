"""What both workers measure a pass with.

It imports nothing that imports tasks.encoder.padding_free, which would change what Trainer computes.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.gpu.turns import Turn
from tasks.training.meter import memory


@contextmanager
def warming_up(folder: Path) -> Iterator[None]:
    """One worker at a time: all cases together may need more memory than a GPU has."""
    with (folder.parent / "warming-up").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # the processes that load Trainer's data have the open file, too


def synchronize(device: torch.device) -> None:
    """Wait until the device has computed everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def start(device: torch.device) -> float:
    """Begin a pass; return the time."""
    synchronize(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    return time.perf_counter()


def finish(device: torch.device, rows: int, began: float) -> Turn:
    """End a pass that began at a time, when the device has computed everything, and leave its memory to others."""
    synchronize(device)
    turn = Turn(rows, time.perf_counter() - began, memory(device))
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return turn
