"""Whether glibc keeps the memory that a rank has freed, or returns it. Other C libraries have no such settings."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # M_TRIM_THRESHOLD and so on, of malloc.h
_LARGE = 2**20  # bytes; with glibc's own first 128 kB, small encoders take 8 % less memory, and longer for each step


def settle(divided: bool) -> None:
    """Prefer speed, or little memory for ranks that divide a model: it was too large for one of them."""
    if divided:
        return_large_blocks()
    else:
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Let glibc keep all freed memory: every step frees and allocates the same blocks, and each new page costs a fault.

    A step of MiniLM then takes about a tenth less CPU time. Over the first hundreds of steps the heap grows by a half,
    because glibc 2.36 seldom reuses an aligned block, as torch's are, for one of the same size.
    """
    _set(_MMAP_MAX, 0)
    _set(_TRIM_THRESHOLD, 2**31 - 1)


def return_large_blocks() -> None:
    """Let glibc map large blocks by themselves, and return them to the system when they are freed.

    By itself, it soon takes all blocks of up to 32 MB from its heap, which then grows by the layers that are gathered
    and the gradients that are received.
    """
    _set(_MMAP_THRESHOLD, _LARGE)
    _set(_TRIM_THRESHOLD, 2 * _LARGE)  # glibc's own ratio


def _set(parameter: int, value: int) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(parameter, value)
