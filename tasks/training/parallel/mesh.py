"""The groups of torch.distributed among the ranks that Horovod has started, whose numbers they keep."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]  # which torch documents
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tasks.communication import ranks
from tasks.communication.layout import Layout

log = logging.getLogger(__name__)
#: A rank that does not answer for so long is lost, as for Horovod (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS).
_PATIENCE = timedelta(seconds=120)
_LONGEST_NAME = 64


def device_mesh(layout: Layout, device: torch.device, folder: Path) -> DeviceMesh:
    """Return the mesh of the ranks. All ranks call it; if they are not yet connected, they meet in the folder."""
    if not dist.is_initialized():
        _connect(layout, device, folder)
    return init_device_mesh(device.type, tuple(layout.mesh), mesh_dim_names=layout.mesh._fields)


def disconnect() -> None:
    """Leave all groups, if there are any."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def lost_ranks_told() -> Iterator[None]:
    """Raise Horovod's error where a group of torch.distributed has lost a rank, which the launcher then reports."""
    from horovod.common.exceptions import HorovodInternalError

    try:
        yield
    except RuntimeError as error:
        for cause in _with_causes(error):
            if isinstance(cause, dist.DistError) or "gloo" in str(cause).lower():  # Gloo's errors have no class
                log.warning("this rank has lost others, or cannot reach them: %s", cause)  # such as a wrong interface
                raise HorovodInternalError(str(cause)) from error
        raise


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Iterate over an error and what has led to it; torch's stages wrap the errors of Gloo."""
    while error is not None:
        yield error
        error = error.__cause__


def _connect(layout: Layout, device: torch.device, folder: Path) -> None:
    """Let the ranks meet through a file that only this user can read, and not through a port that anyone can reach."""
    if len(ranks.ranks_by_host()) == 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    elif interface := os.environ.get("HOROVOD_GLOO_IFACE"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    name = Path(tempfile.mkdtemp(prefix="mesh-", dir=folder)).name if layout.rank == 0 else ""
    told = ranks.gather_bytes(name.encode().ljust(_LONGEST_NAME), "mesh.name")[0].decode().rstrip()
    store = FileStore(str(folder / told / "store"), layout.world)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=layout.rank, world_size=layout.world, timeout=_PATIENCE)
