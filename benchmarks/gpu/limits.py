"""How fast a device multiplies matrices in bf16, which is the limit that a training is compared with.

`python -m benchmarks.gpu.limits SIZE` measures it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import torch

from benchmarks.gpu.passes import synchronize
from tasks.launching.launch import ROOT
from tasks.training.device import rank_device

#: Dense bf16 of the data sheets, in operations a second, by a part of the device's name.
DATA_SHEETS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10": 125e12}
SIZE, REPEATS = 8192, 10
LIMIT = 60.0  # seconds for the measurement


def data_sheet(name: str) -> float | None:
    """Return the limit that the device's data sheet gives; None if it is not known."""
    return next((limit for part, limit in DATA_SHEETS.items() if part in name), None)


def measured_apart(size: int, end: float) -> tuple[float | None, str]:
    """Return what `measured` returns on the device of a rank, in a process of its own, or why it returned nothing."""
    command = [sys.executable, "-m", "benchmarks.gpu.limits", str(size)]
    seconds = max(0.0, min(LIMIT, end - time.monotonic()))
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, f"not done after {seconds:.0f} seconds"
    except subprocess.CalledProcessError as error:
        return None, error.stderr[-2000:]
    return float(done.stdout), ""


def measured(device: torch.device, size: int = SIZE) -> float:
    """Return the operations a second of the product of two random matrices of size x size in bf16, the median."""
    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(REPEATS + 3):  # the first ones choose a kernel and raise the clocks
        synchronize(device)
        began = time.perf_counter()
        torch.mm(one, other)
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    return 2 * float(size) ** 3 / statistics.median(seconds[3:])


if __name__ == "__main__":
    print(measured(rank_device(), int(sys.argv[1])))
