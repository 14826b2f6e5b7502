"""How fast a device multiplies matrices in bf16, which is the limit that a training is compared with."""

from __future__ import annotations

import statistics
import time

import torch

#: Dense bf16 of the data sheets, in operations a second, by a part of the device's name.
DATA_SHEETS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10": 125e12}
SIZE, REPEATS = 8192, 10


def data_sheet(name: str) -> float | None:
    """Return the limit that the device's data sheet gives; None if it is not known."""
    return next((limit for part, limit in DATA_SHEETS.items() if part in name), None)


def measured(device: torch.device, size: int = SIZE) -> float:
    """Return the operations a second of the product of two random matrices of size x size in bf16, the median."""
    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(REPEATS + 3):  # the first ones choose a kernel and raise the clocks
        _finish(device)
        began = time.perf_counter()
        torch.mm(one, other)
        _finish(device)
        seconds.append(time.perf_counter() - began)
    return 2 * float(size) ** 3 / statistics.median(seconds[3:])


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
