"""The training loop: a step from batch to update, in order."""

from __future__ import annotations

import importlib.metadata
import logging
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from include.artifacts import write_json
from tasks.communication.exchange import Exchange
from tasks.communication.layout import Layout
from tasks.encoder.batching import Batch
from tasks.encoder.loading import copy_tokenizer
from tasks.encoder.models import EncoderWithHead
from tasks.training.checkpoint import Checkpoints
from tasks.training.job import METRICS, Job
from tasks.training.meter import Meter, Phases, Profiler, memory_use
from tasks.training.metrics_logger import MetricsLogger
from tasks.training.objectives import BestModel, Objective
from tasks.training.optim import MovingAverage, Optimizer, clipping, learning_rate
from tasks.training.precision import LossScale, NonFiniteGuard, Precision, autocast
from tasks.training.sampler import RankBatch, Sampler
from tasks.training.training_state import TrainingState

log = logging.getLogger(__name__)
LINES = 200  # about the number of training lines in metrics.jsonl


@dataclass(frozen=True)
class Trainer:
    """One rank's part of a training, whose parts factory.py builds; the rank that leads writes the output."""

    job: Job
    stopping: Callable[[], bool]  # whether this rank was asked to stop
    layout: Layout
    device: torch.device
    precision: Precision
    objective: Objective
    model: EncoderWithHead
    sampler: Sampler
    exchange: Exchange
    optimizer: Optimizer
    average: MovingAverage
    loss_scale: LossScale
    guard: NonFiniteGuard
    best: BestModel
    metrics: MetricsLogger
    meter: Meter
    checkpoints: Checkpoints
    state: TrainingState  # what a checkpoint keeps of the other parts
    phases: Phases
    profiler: Profiler
    inputs: Callable[[RankBatch], Batch]  # the rows of a micro-batch, packed if the model packs

    def run(self) -> None:
        """Train until the last step, the pause, or a requested stop, or until the dev split stops improving."""
        if self.layout.leads:
            log.info(
                "training with ranks: %d, threads of each: %d, device: %s, precision: %s",
                self.layout.world, torch.get_num_threads(), self.device.type, self.precision,
            )  # fmt: skip
        done = self.resume()
        with self.profiler(self.sampler.steps - done) as count_step:
            for batch in self.sampler:
                stop = batch.step > done and self.advance(batch, count_step)
                paused = batch.step >= self.pause > 0
                if paused or (batch.step in self.sampler.evaluated and not stop):
                    with self.meter.paused(), self.phases.evaluation:
                        self.evaluate(batch)  # if it pauses here, for those who decide whether it goes on
                if stop or paused:
                    self.metrics.close()
                    return
                if self.best.out_of_patience:
                    break
        self.metrics.close()
        if self.layout.leads:
            self.write_output(batch)

    @property
    def pause(self) -> int:
        """The step after which to pause, with a checkpoint from which the evaluation is repeated; 0: none."""
        return max(1, round(self.job.pause * self.sampler.steps)) % self.sampler.steps

    def advance(self, batch: RankBatch, count_step: Callable[[], None]) -> bool:
        """Take a step, log it and write a checkpoint where these are due; return whether to stop here."""
        stop = self.step(batch) or batch.step == self.pause
        count_step()
        if batch.step % max(1, self.sampler.steps // LINES) == 0 or batch.step in self.sampler.evaluated:
            self.guard.look()
            self.metrics.write(batch, {**self.meter.read(), **memory_use(self.device)})
        if stop or self.checkpoints.due(batch.step):
            self.guard.look()  # a lost training could not continue from a checkpoint
            with self.meter.paused(), self.phases.checkpoint:
                self.checkpoints.write(batch.step, self.state.snapshot())
        return stop

    def step(self, batch: RankBatch) -> bool:
        """Go from a batch to an update; return whether to stop here. Raises BadInput when the loss is lost for good."""
        with self.phases.exchange:
            self.exchange.begin_step(batch.step, self.loss_scale.exchanged, self.stopping())
        self.compute_gradients(batch)
        with self.phases.exchange:
            stop = self.exchange.synchronize_gradients()
        rate = learning_rate(batch.step, self.sampler.steps, self.job.training)
        with self.phases.optimizer:
            norm, scale = self.exchange.norm(), self.loss_scale.remaining
            finite = self.guard.accepts(norm, batch.step)
            if finite:
                self.optimizer.step(rate, clipping(norm, self.job.training.clip_norm, scale), self.guard.found_inf)
                self.exchange.send_parameters()
                if self.average.enabled:
                    self.synchronize_model()
                    self.average.update()
            else:
                if not self.exchange.sharded:
                    self.optimizer.skip()
                self.exchange.discard_step()
        self.loss_scale.update(finite)
        self.optimizer.zero_grad()
        self.meter.end_step(batch, norm / scale, rate)
        self.phases.end_step(batch.rows)
        self.metrics.tick(batch)
        return stop

    def compute_gradients(self, batch: RankBatch) -> None:
        """Run the forward and backward passes of a batch."""
        micro_batches = batch.micro_batches(self.job.training.accumulation)
        for micro_batch in micro_batches:
            with self.phases.data:
                inputs = self.inputs(micro_batch)  # a thread has prepared them, if Python runs ahead of the device
            if not self.exchange.sharded:  # a sharded exchange catches its rows up when their gradient arrives
                with self.phases.optimizer:
                    self.optimizer.catch_up(inputs.input_ids)
            with self.phases.forward:
                loss = self.loss(inputs, micro_batch.weight)
            if micro_batch is micro_batches[-1]:
                self.exchange.sync_next_backward()
            with self.phases.backward:
                (loss * self.loss_scale.value).backward()  # type: ignore[no-untyped-call]
            self.meter.count(inputs, loss)

    def loss(self, inputs: Batch, weight: float) -> torch.Tensor:
        """Return this micro-batch's part of the mean loss of the whole batch, a scalar."""
        here = inputs.to(self.device)
        with autocast(self.precision, self.device):
            losses = self.objective.losses(here)
        return (losses * weight).sum()

    def evaluate(self, batch: RankBatch) -> None:
        """Score the dev split after a step; the rank that leads keeps the model if it is the best so far."""
        self.synchronize_model()
        with self.average.applied():
            metrics, predictions = self.objective.score(self.layout)
            selection, metric = self.objective.selection_metric(metrics), metrics[self.objective.metric]
            if self.best.improves(selection, metric, batch.step):
                self.save_best()
        self.metrics.write(batch, metrics, predictions)

    def save_best(self) -> None:
        """Keep the model, which is the best so far."""
        if self.layout.leads:
            self.best.save(self.model)

    def synchronize_model(self) -> None:
        """Complete all pending updates of the weights, so that something other than a forward pass may read them."""
        self.exchange.receive_parameters()
        self.optimizer.catch_up()
        self.exchange.gather_embeddings()

    def resume(self) -> int:
        """Continue from the newest complete checkpoint; return its step, 0 when there is none."""
        step = self.checkpoints.newest(self.state.identity)
        if step:
            self.state.restore(self.checkpoints, step)
            self.checkpoints.restore_best(step)
        if step and self.layout.leads:
            log.info("continuing from the checkpoint of step %d", step)
        return step

    def write_output(self, last: RankBatch) -> None:
        """Write the best model and the record of the training into the output, training.json last."""
        job = self.job
        if job.folder != job.output:
            shutil.copytree(self.best.folder, job.output / "model", dirs_exist_ok=True)
            shutil.copyfile(job.folder / METRICS, job.output / METRICS)
        copy_tokenizer(job.encoder, job.output / "model", self.model, job.experiment.preprocessing.max_length)
        write_json(job.output / "training.json", self.summary(last))

    def summary(self, last: RankBatch) -> dict[str, object]:
        """Return the content of training.json: the result, the throughput, and what it was measured on."""
        return {
            "metric": self.objective.metric,
            "best": self.best.metric if self.best.defined else None,
            "best_step": self.best.step,
            "steps": last.step,
            "planned_steps": self.sampler.steps,
            "skipped_steps": self.guard.state_dict()["skipped"],
            "epochs": round(last.epoch, 4),
            **self.meter.summary(),
            "bytes": self.bytes_received(last),
            **memory_use(self.device),
            "ranks": self.layout.world,
            **({"mesh": self.layout.mesh._asdict()} if self.layout.divided else {}),
            "threads": torch.get_num_threads(),
            **({"layout": self.job.layout} if self.job.layout else {}),
            "device": self.device.type,
            "precision": self.precision,
            "compression": self.job.experiment.communication.compression,
            "torch": torch.__version__,
            **({"horovod": importlib.metadata.version("horovod")} if self.job.uses_horovod else {}),
        }

    def bytes_received(self, last: RankBatch) -> dict[str, int]:
        """Return the bytes that rank 0 has received, by kind of parameter and "all" together."""
        # "dense" is what sums of all gradients in fp32 would have brought to as many ranks as the training began with.
        ranks = self.job.ranks // self.job.experiment.parallel.ranks
        whole = (p for p in self.model.parameters() if p.requires_grad)
        own: Iterable[torch.Tensor] = whole if self.exchange.sharded else self.exchange.parameters.values()
        dense = 2 * 4 * sum(p.numel() for p in own) * last.step * (ranks - 1) // ranks
        received = {str(kind): count for kind, count in self.meter.totals.bytes.items()}
        return {**received, "all": sum(received.values()), "dense": dense}
