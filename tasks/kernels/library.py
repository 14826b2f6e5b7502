"""The compiled kernels, called with tensors. The C++ files say what each of them computes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from tasks.kernels.build import LEVELS, library_path

_SUFFIX = {torch.bfloat16: "_bf16", torch.float32: "_float", None: ""}
#: The types of the arguments of every kernel: n for a size, p for a tensor or None, d for a real number, s for a seed.
_KERNELS = {
    "gelu": "nnppp",
    "gelu_backward": "nnppp",
    "add_and_norm": "nnpppppdsdpppp",
    "add_and_norm_backward": "nnpppppsdppp",
    "sum_tokens": "nnpp",
    "attention": "nnnnppppnsdp",
    "attention_backward": "nnnnppppnsdppp",
    "add": "npp",
    "norm": "npp",
    "adamw": "npppd",
    "catch_up_rows": "nnnppppp",
    "step_rows": "nnnppppppddddd",
}
_TYPES = {"n": ctypes.c_int64, "p": ctypes.c_void_p, "d": ctypes.c_double, "s": ctypes.c_uint64}


@cache
def library() -> ctypes.CDLL | None:
    """Return the kernels of this environment for this processor, or None if there are none."""
    capability = torch.backends.cpu.get_cpu_capability()
    path = library_path(capability) if capability in LEVELS else None
    return ctypes.CDLL(str(path)) if path and path.exists() else None


@cache
def _function(name: str, dtype: torch.dtype | None) -> Any:
    function = getattr(library(), f"{name}{_SUFFIX[dtype]}")
    function.argtypes, function.restype = [_TYPES[kind] for kind in _KERNELS[name]], None
    return function


def call(name: str, dtype: torch.dtype | None, *arguments: torch.Tensor | float | None) -> None:
    """Call a kernel, for products of a type if there are several. Tensors, passed by address, must be contiguous."""
    _function(name, dtype)(*(one.data_ptr() if isinstance(one, torch.Tensor) else one for one in arguments))


def computes(*tensors: torch.Tensor) -> bool:
    """Return whether the kernels can be called with these tensors."""
    return library() is not None and all(
        one.device.type == "cpu" and one.dtype in _SUFFIX and one.is_contiguous() for one in tensors
    )


def gradient_table(gradients: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return where gradients are, how many elements they have, and whether they are in bf16, int64 [n, 3]."""
    rows = [(one.data_ptr(), one.numel(), one.dtype == torch.bfloat16) for one in gradients]
    return torch.tensor(rows, dtype=torch.int64)
