"""The training loop: a step from batch to update, in order."""

from __future__ import annotations

import importlib.metadata
import logging
import shutil
from collections.abc import Callable, Sequence
from typing import cast

import horovod.torch as hvd
import torch
from torch import nn

from include.artifacts import write_json
from include.sections import Communication
from tasks.communication.all_reduce import AllReduce
from tasks.communication.exchange import Exchange, by_kind
from tasks.communication.hierarchical import Hosts, ranks_by_host
from tasks.communication.parameter_server import ParameterServer
from tasks.encoder.batching import Batch
from tasks.encoder.dropout import replace_dropout
from tasks.encoder.fused_layer import fuse_layers
from tasks.encoder.models import EncoderWithHead, copy_tokenizer
from tasks.encoder.padding_free import allow_packing
from tasks.training.average import Average
from tasks.training.checkpoint import Checkpoints
from tasks.training.device import rank_device
from tasks.training.job import Job
from tasks.training.journal import METRICS, Journal
from tasks.training.layers import freeze, recompute_activations
from tasks.training.meter import Meter, memory_use
from tasks.training.objectives import objective
from tasks.training.optim import Optimizer, learning_rate, settings
from tasks.training.precision import FiniteWatch, LossScale, autocast
from tasks.training.resume import identity, resume, save
from tasks.training.sampler import Sampler, Share, check_batch_size
from tasks.training.selection import Best

log = logging.getLogger(__name__)
LINES = 200  # of metrics.jsonl for a whole training, about


class Trainer:
    """One of Horovod's ranks; rank 0 writes model/, metrics.jsonl and training.json below job.output."""

    def __init__(self, job: Job, stopping: Callable[[], bool]) -> None:
        """Load everything; stopping says whether this rank was asked to stop.

        Raises BadInput when encoder, data and experiment do not fit each other.
        """
        self.job, self.training, self.stopping = job, job.training, stopping
        self.rank, self.world, self.hosts, self.device = hvd.rank(), hvd.size(), ranks_by_host(), rank_device()
        torch.manual_seed(self.training.seed)  # every rank draws the same head
        self.objective = objective(job)
        self.train, self.model = self.objective.train, self.objective.model.to(self.device)
        freeze(self.model.encoder, self.training.freeze_layers)
        if job.batching.padding_free:
            allow_packing(self.model.encoder)
        if self.training.fused_layers and self.device.type == "cpu":
            replace_dropout(self.model)
            fuse_layers(self.model)
        if self.training.activation_checkpointing:
            recompute_activations(self.model.encoder)
        words = cast(nn.Embedding, self.model.encoder.get_input_embeddings())
        words.sparse = self.training.sparse_embeddings
        torch.manual_seed(self.training.seed * 1024 + self.rank)  # and dropout of its own
        check_batch_size(self.train, job.batching, self.training.batch_size, job.ranks)
        self.sampler = Sampler(
            self.train.lengths, self.objective.terms, job.batching, self.training, self.rank, self.world
        )
        self.steps = self.sampler.steps
        alone = job.ranks == 1  # one that others have left keeps what they could not send
        self.exchange = exchange(self.model, job.experiment.communication, self.steps, alone, self.hosts)
        sparse = frozenset(by_kind(self.model)["embeddings"])
        self.optimizer = Optimizer(self.exchange.parameters, settings(self.model, self.training), sparse)
        self.average = Average(self.model, self.training.average_decay, self.settle)
        self.scale = LossScale(self.training.precision)
        self.watch, self.best = FiniteWatch(), Best(job.folder / "model", self.training.patience)
        self.journal = Journal(job.folder if self.rank == 0 else None, self.steps, job.terminal)
        self.meter = Meter(self.exchange.bytes)
        self.checkpoints = Checkpoints(job.folder, job.experiment.runtime.checkpoint_steps, self.rank, self.world)
        self.identity = identity(job)

    def run(self) -> None:
        """Train to the end, until the dev split has not got better for long enough, or until asked to stop."""
        if self.rank == 0:
            threads = torch.get_num_threads()
            log.info("training with ranks: %d, threads of each: %d, device: %s", self.world, threads, self.device.type)
        done = resume(self)
        for share in self.sampler:
            if share.step > done and self.advance(share):
                self.journal.close()
                return
            if share.step in self.sampler.scored:
                with self.meter.paused():
                    self.evaluate(share)
                if self.best.out_of_patience:
                    break
        self.journal.close()
        if self.rank == 0:
            self.hand_over(share)

    def advance(self, share: Share) -> bool:
        """A step, its line in metrics.jsonl and its checkpoint, where there is one; whether to stop here."""
        stop = self.step(share)
        if share.step % max(1, self.steps // LINES) == 0 or share.step in self.sampler.scored:
            self.journal.write(share, {**self.meter.read(), **memory_use(self.device)})
        if stop or self.checkpoints.due(share.step):
            with self.meter.paused():
                save(self, share.step)
        return stop

    def step(self, share: Share) -> bool:
        """From batch to update; whether to stop here. Raises BadInput when the loss is lost for good."""
        self.exchange.begin(share.step, self.scale.value, self.stopping())
        parts = share.parts(self.training.accumulation)
        for part in parts:
            batch = self.batch(part)
            if not self.exchange.sharded:  # a server catches its rows up when their gradient comes
                self.optimizer.catch_up(batch.input_ids)
            loss = self.loss(batch, part.weight)
            if part is parts[-1]:
                self.exchange.send_next()  # gradients leave for the other ranks while backward still runs
            (loss * self.scale.value).backward()  # type: ignore[no-untyped-call]
            self.meter.count(batch, loss)
        stop = self.exchange.synchronize()
        norm = self.exchange.norm()
        rate = learning_rate(share.step, self.steps, self.training)
        finite = self.watch.accepts(norm, share.step)
        if finite:
            self.optimizer.step(rate, divisor=max(1.0, norm / self.training.clip_norm))
            self.exchange.distribute()
            self.average.update()
        else:
            if not self.exchange.sharded:
                self.optimizer.skip()
            self.exchange.forget()
        self.scale.update(finite)
        self.optimizer.zero_grad()
        self.meter.end_step(share, norm, rate)
        self.journal.tick(share)
        return stop

    def batch(self, part: Share) -> Batch:
        """The part's rows."""
        batch = self.objective.batch(part.indices, part.step)
        return batch.packed() if self.job.batching.padding_free else batch

    def loss(self, batch: Batch, weight: float) -> torch.Tensor:
        """The rank's part of the batch's mean loss."""
        here = batch.to(self.device)
        with autocast(self.training.precision, self.device):
            losses = self.objective.losses(here)
        return (losses * weight).sum()

    def evaluate(self, share: Share) -> None:
        """Score the dev split; rank 0 keeps the model if it is the best so far."""
        self.settle()
        with self.average.applied():
            metrics = self.objective.score(self.rank, self.world)
            goodness, metric = self.objective.goodness(metrics), metrics[self.objective.metric]
            if self.best.better(goodness, metric, share.step) and self.rank == 0:
                self.best.keep(self.model)
        self.journal.write(share, metrics)

    def settle(self) -> None:
        """The whole model will be read: put in what is under way, and what AdamW owes to rows of word embeddings."""
        self.exchange.settle()
        self.optimizer.catch_up()
        self.exchange.hand_out_rows()

    def hand_over(self, last: Share) -> None:
        """Put the best model and the record of the training into the output; training.json comes last."""
        job = self.job
        if job.folder != job.output:
            shutil.copytree(self.best.folder, job.output / "model", dirs_exist_ok=True)
            shutil.copyfile(job.folder / METRICS, job.output / METRICS)
        copy_tokenizer(job.encoder, job.output / "model")
        write_json(job.output / "training.json", self.summary(last))

    def summary(self, last: Share) -> dict[str, object]:
        """What training.json holds: how it went, how fast, and on what."""
        training = self.training
        return {
            "metric": self.objective.metric,
            "best": self.best.metric if self.best.defined else None,
            "best_step": self.best.step,
            "steps": last.step,
            "planned_steps": self.steps,
            "skipped_steps": self.watch.skipped,
            "epochs": round(last.epoch, 4),
            **self.meter.summary(),
            "bytes": self.bytes(last),
            **memory_use(self.device),
            "ranks": self.world,
            "threads": torch.get_num_threads(),
            "device": self.device.type,
            "precision": training.precision,
            "compression": self.job.experiment.communication.compression,
            "torch": torch.__version__,
            "horovod": importlib.metadata.version("horovod"),
        }

    def bytes(self, last: Share) -> dict[str, int]:
        """What rank 0 has received, by kind and in all, and what a sum of all gradients in fp32 would have brought."""
        elements = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        ranks = self.job.ranks  # as many as at the beginning, also when some are gone
        dense = 2 * 4 * elements * last.step * (ranks - 1) // ranks
        received = self.meter.bytes
        return {**received, "all": sum(received.values()), "dense": dense}


def exchange(
    model: EncoderWithHead, communication: Communication, steps: int, alone: bool, ranks: Sequence[int]
) -> Exchange:
    """The experiment's way of communicating among so many ranks on each host.

    alone: there is one rank, and there never were others.
    """
    if communication.strategy == "parameter-server":
        return ParameterServer(model, communication)
    if alone:
        return Exchange(model)
    hosts = Hosts(ranks) if communication.strategy == "hierarchical" else None
    return AllReduce(model, communication, round(communication.compression_start * steps) + 1, hosts)
