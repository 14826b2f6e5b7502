"""Which device a rank trains on, and whether Python runs ahead of it."""

from __future__ import annotations

import torch

from include.stages import BadInput
from tasks.communication.ranks import local_rank, local_size


def rank_device() -> torch.device:
    """Return the device of this rank; a GPU becomes torch's current one. Raises BadInput as device_of does."""
    device = torch.device(device_of(local_rank(), local_size(), torch.cuda.device_count()))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def runs_ahead(device: torch.device) -> bool:
    """Return whether the device computes while Python goes on, so that it costs time to ask it for a number."""
    return device.type == "cuda"


def device_of(local_rank: int, local_size: int, gpus: int) -> str:
    """Return the device of one of a machine's ranks: a GPU of its own where there are GPUs, else the CPU.

    Args:
        local_rank: the rank's number on its machine.
        local_size: the number of ranks on the machine.
        gpus: the number of GPUs of the machine.

    Raises:
        BadInput: there are fewer GPUs than ranks.
    """
    if 0 < gpus < local_size:
        raise BadInput(
            f"{local_size} ranks are to train on one machine, which has fewer GPUs ({gpus}): write "
            f"training.ranks: auto, or {gpus} per machine"
        )
    return f"cuda:{local_rank}" if gpus else "cpu"
