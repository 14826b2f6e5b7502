"""The training loop: a step from batch to update, in order."""

from __future__ import annotations

import importlib.metadata

import horovod.torch as hvd
import torch

from include.artifacts import write_json
from tasks.encoder.batching import TokenTable
from tasks.encoder.models import copy_tokenizer, load_pretrained
from tasks.engine.communicate import GradientExchange
from tasks.engine.data import Share, check, check_batch_size, evaluation_steps, shares, total_steps
from tasks.engine.job import Job
from tasks.engine.journal import Journal
from tasks.engine.loss import row_losses
from tasks.engine.meter import Meter, memory
from tasks.engine.optim import adamw, clip, learning_rate, set_learning_rate
from tasks.engine.precision import FiniteWatch, autocast, loss_scaler
from tasks.engine.scoring import Best, score

LINES = 200  # of metrics.jsonl for a whole training, about


class Trainer:
    """One of Horovod's ranks; rank 0 writes model/, metrics.jsonl and training.json below job.output."""

    def __init__(self, job: Job) -> None:
        """Load everything. Raises BadInput when encoder, data and experiment do not fit each other."""
        self.job, self.task, self.training = job, job.experiment.task, job.experiment.training
        self.rank, self.world, self.device = hvd.rank(), hvd.size(), _device()
        self.train, self.dev = TokenTable.open(job.data / "train"), TokenTable.open(job.data / "dev")
        torch.manual_seed(self.training.seed)  # every rank draws the same head
        self.model = load_pretrained(job.encoder, job.head).to(self.device)
        torch.manual_seed(self.training.seed * 1024 + self.rank)  # and dropout of its own
        check(self.train, self.model)
        check(self.dev, self.model)
        check_batch_size(self.train, self.training)
        self.steps = total_steps(len(self.train), self.training)
        self.optimizer = adamw(self.model, self.training)
        self.scaler = loss_scaler(self.training.precision, self.device)
        self.exchange = GradientExchange(self.model, job.experiment.communication.compression, self.scaler)
        self.watch, self.best = FiniteWatch(), Best(job.output / "model", self.training.patience)
        self.journal = Journal(job.output if self.rank == 0 else None, self.steps, job.terminal)
        self.meter = Meter()

    def run(self) -> None:
        """Train to the end, or until the dev split has not got better for long enough."""
        scored = evaluation_steps(len(self.train), self.training)
        for share in shares(self.train.lengths, self.training, self.rank, self.world):
            self.step(share)
            if share.step % max(1, self.steps // LINES) == 0 or share.step in scored:
                self.journal.write(share, {**self.meter.read(), "memory": memory(self.device)})
            if share.step in scored:
                with self.meter.paused():
                    self.evaluate(share)
                if self.best.out_of_patience:
                    break
        self.journal.close()
        if self.rank == 0:
            copy_tokenizer(self.job.encoder, self.job.output / "model")
            write_json(self.job.output / "training.json", self.summary(share))

    def step(self, share: Share) -> None:
        """From batch to update. Raises BadInput when the loss is lost for good."""
        batch = self.train.batch(share.indices)
        here = batch.to(self.device)
        with autocast(self.training.precision, self.device):
            logits = self.model(here.input_ids, here.attention_mask, here.token_type_ids)
        loss = (row_losses(self.task.kind, logits, here.labels) * share.weight).sum()
        # Gradients leave for the other ranks while backward still runs.
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self.exchange.synchronize()
        self.scaler.unscale_(self.optimizer)
        norm = clip(self.model, self.training.clip_norm)
        self.exchange.adapt(norm)
        rate = learning_rate(share.step, self.steps, self.training)
        set_learning_rate(self.optimizer, rate)
        if self.watch.accepts(norm, share.step):
            self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.meter.count(share, batch, loss, norm, rate)
        self.journal.tick(share)

    def evaluate(self, share: Share) -> None:
        """Score the dev split; rank 0 keeps the model if it is the best so far."""
        metrics = score(self.model, self.dev, self.task, self.rank, self.world)
        if self.best.better(metrics[self.task.metric], share.step) and self.rank == 0:
            self.best.keep(self.model)
        self.journal.write(share, metrics)

    def summary(self, last: Share) -> dict[str, object]:
        """What training.json holds: how it went, how fast, and on what."""
        training = self.training
        return {
            "metric": self.task.metric,
            "best": self.best.metric if self.best.defined else None,
            "best_step": self.best.step,
            "steps": last.step,
            "planned_steps": self.steps,
            "skipped_steps": self.watch.skipped,
            "epochs": round(last.epoch, 4),
            **self.meter.summary(),
            "memory": memory(self.device),
            "ranks": self.world,
            "threads": torch.get_num_threads(),
            "device": self.device.type,
            "precision": training.precision,
            "compression": self.job.experiment.communication.compression,
            "torch": torch.__version__,
            "horovod": importlib.metadata.version("horovod"),
        }


def _device() -> torch.device:
    """A GPU for each local rank where there are GPUs, else the CPU."""
    return torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
