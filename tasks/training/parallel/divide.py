"""Dividing a model among ranks, which torch.distributed then connects, and the trainers of such a model."""

from __future__ import annotations

import copy
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import FileStore  # type: ignore[attr-defined]  # which torch documents
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from include.stages import Transient
from tasks.communication import ranks
from tasks.communication.divided import DividedModel, Part, parts_of
from tasks.communication.exchange import Exchange
from tasks.communication.layout import Layout
from tasks.communication.ranks import sum_over_ranks
from tasks.encoder.models import Classifier, EncoderWithHead
from tasks.training.checkpoint import load_pieces, save_pieces
from tasks.training.layers import layers_of
from tasks.training.loop import Trainer
from tasks.training.parallel.pipeline import Pipeline, StagedClassifier, check_pipeline, keep_stage
from tasks.training.parallel.tensor import check_tensor, divide_layers
from tasks.training.sampler import RankBatch

log = logging.getLogger(__name__)
#: A rank that does not answer for so long is lost, as for Horovod (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS).
_PATIENCE = timedelta(seconds=120)
_LONGEST_NAME = 64


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
        cause: BaseException | None = error
        while cause is not None:  # torch's stages wrap the errors of Gloo
            if isinstance(cause, dist.DistError) or "gloo" in str(cause).lower():  # Gloo's errors have no class
                log.warning("this rank has lost others, or cannot reach them: %s", cause)  # such as a wrong interface
                raise HorovodInternalError(str(cause)) from error
            cause = cause.__cause__
        raise


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


@dataclass(frozen=True)
class Division:
    """A model that is divided."""

    mesh: DeviceMesh
    model: EncoderWithHead  # what this rank computes of it
    parts: dict[str, Part]  # this rank's parts of the parameters, by name
    skeleton: EncoderWithHead  # the whole model without values

    def exchange(self, layout: Layout) -> Exchange:
        """Return the exchange of its gradients."""
        return DividedModel(self.model, self.parts, layout)

    def trainer(self, *parts: Any) -> Trainer:
        """Return the trainer, given the parts that every trainer has."""
        trainer = DividedTrainer(*parts, skeleton=self.skeleton)
        if trainer.layout.mesh.pipeline == 1:
            return trainer
        mesh, settings = self.mesh["pipeline"], trainer.job.experiment.parallel
        pipeline = Pipeline(trainer.objective, trainer.layout, mesh, settings, trainer.precision)
        return PipelineTrainer(*parts, skeleton=self.skeleton, pipeline=pipeline)


def divide(model: EncoderWithHead, layout: Layout, device: torch.device, folder: Path) -> Division:
    """Keep this rank's part of a model. All ranks call it, and meet in the folder. May raise BadInput."""
    skeleton, classifier = _without_values(model), cast(Classifier, model)
    if layout.mesh.tensor > 1:
        check_tensor(model, layout.mesh.tensor)
    if layout.mesh.pipeline > 1:
        check_pipeline(classifier, layout.mesh.pipeline)
    if not dist.is_initialized():
        _connect(layout, device, folder)
    mesh = init_device_mesh(device.type, tuple(layout.mesh), mesh_dim_names=layout.mesh._fields)
    if layout.mesh.pipeline > 1:
        keep_stage(classifier, layout)
        model = StagedClassifier(classifier, layout, mesh["pipeline"])
    if layout.mesh.tensor > 1:
        divide_layers(model, mesh["tensor"])
    if layout.mesh.shard > 1:
        _shard(model, mesh["shard"])
    return Division(mesh, model, parts_of(model, layout), skeleton)


def _without_values(model: EncoderWithHead) -> EncoderWithHead:
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = buffer.to("meta")
    return copy.deepcopy(model, memo)


def _shard(model: EncoderWithHead, mesh: DeviceMesh) -> None:
    """Keep a part of every weight, and gather those of a layer when it is computed (FSDP2; Zhao et al. 2023)."""
    units = [part for layer in layers_of(model.encoder) for part in layer]
    embeddings = getattr(model.encoder, "embeddings", None)
    for unit in [*([embeddings] if embeddings is not None else []), *units, model]:
        # The losses of a batch are weighted so that they add up; torch would take the mean over the ranks.
        sharded = fully_shard(unit, mesh=mesh, reshard_after_forward=True)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # Gloo has no other


@dataclass(frozen=True)
class DividedTrainer(Trainer):
    """One rank's part of the training of a model of which it has a part."""

    skeleton: EncoderWithHead = field(kw_only=True)

    def save_best(self) -> None:
        """Keep the model, which is the best so far. Its parts meet in files, so that only the first rank has all."""
        folder = self.job.folder / ".best-parts"
        if self.layout.leads:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        sum_over_ranks([0], "parts")  # waits for all ranks
        parts, place_of = self.state.written_weights()
        try:
            save_pieces(parts, place_of, folder / f"{self.layout.rank}.safetensors")
        except OSError as error:
            raise Transient(f"cannot write the model to {folder}: {error}") from error
        sum_over_ranks([0], "parts")
        if self.layout.leads:
            whole = load_pieces(sorted(folder.glob("*.safetensors")), None, torch.device("cpu"))
            self.skeleton.load_state_dict(whole, strict=False, assign=True)
            self.best.save(self.skeleton)
            self.skeleton.to("meta")
            shutil.rmtree(folder)


@dataclass(frozen=True)
class PipelineTrainer(DividedTrainer):
    """One rank's part of the training of a model whose layers are divided among stages, of which it has one."""

    pipeline: Pipeline = field(kw_only=True)

    def compute_gradients(self, batch: RankBatch) -> None:
        """Run the forward and backward passes of a batch, whose micro-batches all stages compute at the same time."""
        with self.phases.data:
            inputs = self.inputs(batch)
        with self.phases.backward:
            loss = self.pipeline.step(inputs.to(self.device), batch.weight, self.loss_scale.value)
        rows, length = self.pipeline.shape(inputs)
        self.meter.count(inputs, loss, rows * length)
