"""What glibc does with the memory that a rank has freed. C libraries without mallopt do as they do."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # M_TRIM_THRESHOLD and so on, of malloc.h
_LARGE = 2**20  # bytes; with glibc's own first 128 kB, small encoders take 8 % less memory, and longer for each step


def settle(divided: bool) -> None:
    """Choose between speed, and little memory for ranks that divide a model because it is too large for one of them."""
    if divided:
        return_large_blocks()
    else:
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks: every step frees and allocates the same ones, and each new page costs a fault.

    A step of MiniLM then takes about a tenth less CPU time.
    """
    _set(_MMAP_MAX, 0)
    _set(_TRIM_THRESHOLD, 2**31 - 1)


def return_large_blocks() -> None:
    """Let glibc give every large block back to the system when it is freed.

    By itself, glibc does so only for blocks larger than any that was freed before, or than 32 MB, and takes others
    from its heap. There, glibc 2.36 seldom reuses an aligned block, as torch's are, for one of the same size, so that
    the heap grows by the layers that are gathered and the gradients that are received.
    """
    _set(_MMAP_THRESHOLD, _LARGE)


def _set(parameter: int, value: int) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(parameter, value)
