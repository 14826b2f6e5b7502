"""Building a trainer: which parts a training has, and what each of them is given."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from tasks.communication import ranks
from tasks.communication.exchange import Exchange, SingleRank, by_kind
from tasks.communication.layout import Layout, layout_of
from tasks.encoder.adapters import add_adapters
from tasks.encoder.batching import Batch
from tasks.encoder.dropout import replace_dropout
from tasks.encoder.fused_layer import fuse_layers, fused_linears, leave_gradients_narrow, multiply_with
from tasks.encoder.models import EncoderWithHead
from tasks.encoder.padding_free import allow_packing
from tasks.kernels.library import computes
from tasks.training.adamw import Setting
from tasks.training.checkpoint import Checkpoints
from tasks.training.device import rank_device, runs_ahead
from tasks.training.job import Job
from tasks.training.layers import compile_layers, freeze, layers_of, recompute_activations
from tasks.training.loop import Trainer
from tasks.training.meter import Meter, Phases, build_profiler
from tasks.training.metrics_logger import MetricsLogger
from tasks.training.objectives import BestModel, Objective, build_objective
from tasks.training.optim import MovingAverage, Optimizer, settings
from tasks.training.precision import DeviceGuard, DeviceLossScale, LossScale, NonFiniteGuard, Precision, resolve
from tasks.training.sampler import Prefetch, RankBatch, Sampler, check_batch_size
from tasks.training.training_state import RandomState, TrainingState, Weights, identity

if TYPE_CHECKING:
    from tasks.training.parallel.divide import Division

log = logging.getLogger(__name__)
_NO_PACKING = (
    "batching.padding_free has no effect: the encoder (%s) cannot compute a batch without padding, because it "
    "implements attention itself or would mix the rows; batches are padded"
)
_NO_FUSED_LAYERS = (
    "training.fused_layers has no effect except on dropout: none of the layers of the encoder (%s) can be fused, only "
    "BERT's and MPNet's with GELU"
)
_NO_KERNELS = "the kernels are not compiled for this processor, so the encoder (%s) is trained without: run make setup"


def build_trainer(job: Job, stopping: Callable[[], bool], scratch: Path | None = None) -> Trainer:
    """Load data and model, and build the trainer of this rank. Raises BadInput if they do not fit each other.

    `stopping` returns whether this rank was asked to stop. `scratch` is a folder that all ranks see, and that is
    removed after them: profiles are written there, and ranks that divide the model meet there.
    """
    training, layout = job.training, layout_of(job.experiment.parallel)
    assert ranks.connected() or not job.uses_horovod, "Horovod is not initialized"
    hosts, device = ranks.ranks_by_host(), rank_device()
    objective, chosen, division = _load(job, layout, device, scratch)
    model, train = objective.model, objective.train
    torch.manual_seed(training.seed * 1024 + layout.random)  # the same head on every rank, and dropout of its own
    check_batch_size(train, job.batching, training.batch_size, layout.row_parts)
    sampler = Sampler(train.lengths, objective.terms, job.batching, training, layout.rows, layout.row_parts)
    sparse = frozenset(by_kind(model)["embeddings"])
    # Rows with gradients, sums over ranks and averaged weights need a decision in Python, which waits for the device.
    ahead = runs_ahead(device) and not (sparse or job.uses_horovod or training.average_decay)
    precision = resolve(training.precision, device)
    if division:
        exchange = division.exchange(layout)
    else:
        exchange = build_exchange(model, job, sampler.steps, hosts, precision, ahead)
    optimizer = Optimizer(exchange.parameters, chosen, sparse, exchange.owned, exchange.copies)
    average, best = MovingAverage(model, training.average_decay), BestModel(job.folder / "model", training.patience)
    guard = DeviceGuard(device) if ahead else NonFiniteGuard()
    loss_scale = DeviceLossScale(precision, guard) if isinstance(guard, DeviceGuard) else LossScale(precision)
    metrics = MetricsLogger(job.folder if layout.leads else None, sampler.steps, job.terminal)
    meter = Meter(exchange.bytes_received, job.spent, layout.counts)
    moments, random = {"optimizer": optimizer}, RandomState(device, training.seed, layout.random)
    weights = Weights(model, division.parts if division else None)
    state = TrainingState(
        shared={"model": weights, "average": average, **({} if exchange.sharded else moments)},
        per_rank={"meter": meter, "random": random},
        per_layout={**(moments if exchange.sharded else {}), "exchange": exchange},
        values={
            "sampler": sampler, "loss_scale": loss_scale, "guard": guard, "best": best, "meter": meter.totals,
            "metrics": metrics,
        },
        redistribute=exchange.redistribute,
        random=random,
        hosts=hosts,
        layout=layout,
        places={name: part.place for name, part in division.parts.items()} if division else {},
        identity=identity(job),
    )  # fmt: skip
    shares_memory = len(hosts) == 1 and bool(exchange.owned)
    make = division.trainer if division else Trainer
    return make(
        job, stopping, layout, device, precision, objective, model, sampler, exchange, optimizer, average, loss_scale,
        guard, best, metrics, meter,
        _checkpoints(job, layout.rank, best.folder), state, Phases(),
        build_profiler(job, scratch, layout.rank, device, shares_memory), _inputs(job, objective, sampler, device),
    )  # fmt: skip


def _checkpoints(job: Job, rank: int, best: Path) -> Checkpoints:
    every = job.experiment.runtime.checkpoint_steps
    if not job.address:
        return Checkpoints(job.folder, every, rank, best)
    from tasks.training.staged_checkpoints import StagedCheckpoints  # imports pyspark

    return StagedCheckpoints(job.folder, every, rank, best, job.address)


def _load(
    job: Job, layout: Layout, device: torch.device, scratch: Path | None
) -> tuple[Objective, dict[str, Setting], Division | None]:
    torch.manual_seed(job.training.seed)  # every rank draws the same head
    objective = build_objective(job)
    model = prepare_model(objective.model, job, device)
    chosen = settings(model, job.training)
    if not layout.divided:
        return objective, chosen, None
    from tasks.training.parallel.divide import divide  # and what torch has for it, which a whole model does without

    assert scratch, "ranks that divide the model have no folder to meet in"
    division = divide(model, layout, device, scratch)
    objective.model = division.model
    return objective, chosen, division


def prepare_model(model: EncoderWithHead, job: Job, device: torch.device) -> EncoderWithHead:
    """Move the model to the device and make it what the experiment asks for. Raises BadInput where it cannot be."""
    training, kind = job.training, model.encoder.config.model_type
    model = model.to(device)
    if training.lora_rank and job.objective == "labels":
        add_adapters(model.encoder, layers_of(model.encoder), training)
    else:
        freeze(model.encoder, training.freeze_layers)
    if job.batching.padding_free:
        model.packs = allow_packing(model.model)
        _log_unless(model.packs, logging.WARNING, _NO_PACKING, kind)
    if training.compiled_layers:
        compile_layers(model.encoder)
    elif training.fused_layers and device.type == "cpu":
        replace_dropout(model)
        fused = fuse_layers(model.encoder)
        _log_unless(computes(), logging.WARNING, _NO_KERNELS, kind)
        _log_unless(fused or not computes(), logging.INFO, _NO_FUSED_LAYERS, kind)  # The option is on by default.
    if training.activation_checkpointing:
        recompute_activations(model.encoder)
    words = cast(nn.Embedding, model.encoder.get_input_embeddings())
    # On a GPU, to find the rows with a gradient takes longer than to update all, and Python waits for their number.
    words.sparse = training.sparse_embeddings and (job.uses_horovod or not runs_ahead(device))
    return model


def _log_unless(supported: bool, level: int, message: str, kind: str) -> None:
    if not supported and ranks.rank() == 0:
        log.log(level, message, kind)


def build_exchange(
    model: EncoderWithHead, job: Job, steps: int, hosts: Sequence[int], precision: Precision, ahead: bool
) -> Exchange:
    """Build the exchange of a training of `steps` steps, with `hosts` ranks on each host, of a model that is whole.

    `ahead` says whether Python runs ahead of the device. Fused layers get what they multiply with in bf16.
    """
    narrow = fused_linears(model) if precision == "bf16" and not model.packs else {}
    if job.training.accumulation == 1:
        for linear in narrow.values():
            leave_gradients_narrow(linear)
    exchange = _summing(model, job, steps, hosts, narrow) if job.uses_horovod else SingleRank(model, ahead, narrow)
    for name in narrow.keys() & exchange.copies.keys():  # only trained weights have copies
        multiply_with(exchange.copies[name], narrow[name])
    return exchange


def _summing(model: EncoderWithHead, job: Job, steps: int, hosts: Sequence[int], copies: Collection[str]) -> Exchange:
    # These modules import Horovod, which need not be installed for a single rank.
    from tasks.communication.all_reduce import AllReduce, shared_bytes
    from tasks.communication.hosts import Hosts
    from tasks.communication.parameter_server import ParameterServer
    from tasks.communication.shared_memory import share_memory

    communication = job.experiment.communication
    if communication.strategy == "parameter-server":
        return ParameterServer(model, communication)
    hierarchy = Hosts(hosts) if communication.strategy == "hierarchical" else None
    together = hierarchy or (len(hosts) == 1 and communication.compression == "none")
    shares = together and max(hosts) > 1 and model.device.type == "cpu"
    host = share_memory(shared_bytes(model, ranks.local_size(), copies), hosts) if shares else None
    first = round(communication.compression_start * steps) + 1
    return AllReduce(model, communication, first, hierarchy, host, copies)


def _inputs(job: Job, objective: Objective, sampler: Sampler, device: torch.device) -> Callable[[RankBatch], Batch]:
    def prepare(batch: RankBatch) -> Batch:
        rows = objective.batch(batch.indices, batch.step)
        return rows.packed() if objective.model.packs else rows

    return Prefetch(sampler, job.training.accumulation, prepare) if runs_ahead(device) else prepare
