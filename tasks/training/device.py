"""Which GPUs a machine has for trainings, which device a rank trains on, and whether Python runs ahead of it."""

from __future__ import annotations

import logging
import os
from functools import cache
from pathlib import Path

import torch

from include.stages import BadInput
from tasks.communication.ranks import local_rank, local_size

log = logging.getLogger(__name__)
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_DRIVER = Path("/dev/nvidiactl")
#: What torch says where there is none, in contrast to one that does not work.
_NO_GPU = ("Found no NVIDIA driver", "GPUs are available")
_REMEDY = f"or train on the CPU, with an empty {_VISIBLE} in the environment"


@cache
def usable_gpus() -> int:
    """Return the number of GPUs that torch computes on, without taking their memory. Raises BadInput if it cannot."""
    if os.environ.get(_VISIBLE) in ("", "-1"):
        return 0
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        if _DRIVER.exists():
            log.warning("a GPU is not used, because torch %s is for the CPU only", torch.__version__)
        return 0
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError, torch.cuda.DeferredCudaCallError) as error:
        reason = str(error).partition("\n")[0]
        if any(part in reason for part in _NO_GPU):
            return 0
        raise BadInput(
            f"torch {torch.__version__} cannot use a GPU ({reason}): update its driver, {_REMEDY}"
        ) from error
    gpus, codes = torch.cuda.device_count(), torch.cuda.get_arch_list()
    for number in range(gpus):
        capability = torch.cuda.get_device_capability(number)
        if torch.version.cuda and not any(runs(code, capability) for code in codes):
            raise BadInput(
                f"torch {torch.__version__} computes on GPUs of {' '.join(codes)}, but GPU {number}, "
                f"{torch.cuda.get_device_name(number)}, has the compute capability {capability[0]}.{capability[1]}: "
                f"name the other GPUs in {_VISIBLE}, {_REMEDY}"
            )
    return gpus


def runs(code: str, capability: tuple[int, int]) -> bool:
    """Return whether a GPU of this compute capability runs code such as sm_90, or, compiled there, compute_90."""
    kind, number = code.split("_")
    major, minor = divmod(int(number.rstrip("af")), 10)
    if kind == "compute":
        return (major, minor) <= capability
    return major == capability[0] and minor <= capability[1]


def rank_device() -> torch.device:
    """Return the device of this rank; a GPU becomes torch's current one."""
    device = torch.device(device_of(local_rank(), local_size(), usable_gpus()))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def runs_ahead(device: torch.device) -> bool:
    """Return whether the device computes while Python goes on, so that it costs time to ask it for a number."""
    return device.type == "cuda"


def device_of(local_rank: int, local_size: int, gpus: int) -> str:
    """Return the device of one of a machine's ranks. Raises BadInput if there are GPUs, but fewer than ranks."""
    if 0 < gpus < local_size:
        raise BadInput(
            f"{local_size} ranks are to train on one machine, which has fewer GPUs ({gpus}): write "
            f"training.ranks: auto, or {gpus} per machine"
        )
    return f"cuda:{local_rank}" if gpus else "cpu"
