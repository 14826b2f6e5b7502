"""What a process sets before it trains: its threads, what glibc does with freed memory, and Horovod's cycle."""

from __future__ import annotations

import ctypes
import os

from joblib import cpu_count

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # M_TRIM_THRESHOLD and so on, of malloc.h
_LARGE = 2**20  # bytes; with glibc's own first 128 kB, small encoders take 8 % less memory, and longer for each step

CYCLE, CACHE = "HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY"
#: Milliseconds between two looks of Horovod's thread for tensors that all ranks have. On a CPU, each look costs all
#: ranks about 0.2 ms of a core. A tensor waits half a cycle, but most leave while the backward pass goes on.
#: benchmarks/polling.py measures what trainings take with 1, 5, 10 and 20.
ON_CPU = "10"
ON_GPU = "1"  # Horovod's own


def threads(ranks: int) -> int:
    """Return the threads for each of the ranks, which share the CPUs that affinity and the cgroup's quota allow."""
    return max(1, int(cpu_count()) // ranks)


def limit_threads() -> None:
    """Let torch use the CPUs of this process and no more: by itself it heeds affinity, but no quota."""
    import torch

    torch.set_num_threads(min(torch.get_num_threads(), threads(ranks=1)))


def set_cycle(gpus: int) -> None:
    """Set Horovod's cycle to that of this rank's device, unless the user has set one."""
    os.environ.setdefault(CYCLE, ON_GPU if gpus else ON_CPU)


def tune_heap(divided: bool) -> None:
    """Prefer speed, or little memory for ranks that divide a model: it was too large for one of them."""
    if not divided:
        keep_freed_memory()
        return
    # Large blocks are mapped separately, and returned to the system when they are freed. Otherwise glibc soon takes all
    # blocks of up to 32 MB from its heap, which then grows by the layers that are gathered and the gradients received.
    _set(_MMAP_THRESHOLD, _LARGE)
    _set(_TRIM_THRESHOLD, 2 * _LARGE)  # glibc's own ratio


def keep_freed_memory() -> None:
    """Let glibc keep all freed memory: every step frees and allocates the same blocks, and each new page costs a fault.

    A step of MiniLM then takes about a tenth less CPU time. Over the first hundreds of steps the heap grows by a half,
    because glibc 2.36 seldom reuses an aligned block, as torch's are, for one of the same size.
    """
    _set(_MMAP_MAX, 0)
    _set(_TRIM_THRESHOLD, 2**31 - 1)


def _set(parameter: int, value: int) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # other C libraries have no such settings
        libc.mallopt(parameter, value)
