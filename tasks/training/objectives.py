"""What a training minimizes: the model, its batches, their losses, how the dev split is scored, and the best model."""

from __future__ import annotations

import dataclasses
import math
import shutil
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch.nn import functional

from include.stages import BadInput
from tasks.communication.layout import Layout
from tasks.communication.ranks import gather_rows, sum_over_ranks
from tasks.encoder.batching import Array, Batch, Teaching, TokenTable, label_tensor, length_batches
from tasks.encoder.loading import load_encoder, load_pretrained
from tasks.encoder.models import Classifier, EncoderWithHead, MaskedLanguageModel, batch_logits
from tasks.encoder.windows import pool
from tasks.scoring.metrics import all_metrics
from tasks.scoring.predictions import distribution
from tasks.training.job import Job
from tasks.training.loss import Criterion, distillation
from tasks.training.masking import HIDDEN, IGNORED, Masking, Vocabulary
from tasks.training.sampler import check, training_rows

LOSS = "dev_loss"  # in metrics.jsonl "loss" is the loss of training
BATCH_TOKENS = 2048  # small enough for every rank to get rows of a dev split of a few hundred rows
#: What an evaluation of the dev split has found, equal on every rank: metrics, and the distribution of predictions.
Scores = tuple[dict[str, float], dict[str, dict[str, float]]]


class Objective(ABC):
    """The difference between fine-tuning and pre-training. The loop is the same for both."""

    model: EncoderWithHead  # that is trained, in training mode
    terms: Array  # of each training row, [rows]: a batch's mean loss is divided by the sum of its rows' terms
    metric: str  # which metric of `score` training.json shows
    best_by: str = "loss"  # or the metric by which the best model is selected

    def __init__(self, job: Job) -> None:
        self.train, self.dev = TokenTable.open(job.data / "train"), TokenTable.open(job.data / "dev")
        self.length = job.experiment.preprocessing.max_length if job.batching.kind == "static" else 0

    @abstractmethod
    def batch(self, indices: Array, step: int) -> Batch:
        """Return the training rows at these positions, [rows], as the step (counted from 1) sees them."""

    @abstractmethod
    def losses(self, batch: Batch) -> torch.Tensor:
        """Return all losses whose mean is the loss of the batch, float32 [losses]."""

    @abstractmethod
    def score(self, layout: Layout) -> Scores:
        """Score the dev split, of which each rank computes a part."""

    def selection_metric(self, metrics: dict[str, float]) -> float:
        """Return the value that the best model is selected by, from the metrics of `score`: the larger, the better."""
        return -metrics[LOSS] if self.best_by == "loss" else metrics[self.metric]


class FineTuning(Objective):
    """Fine-tuning on labeled rows: classes or scores."""

    model: Classifier

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        experiment = job.experiment
        self.task, self.best_by = experiment.task, experiment.training.best_by
        self.metric = self.task.metric if self.best_by in ("metric", "loss") else self.best_by
        self.model = load_pretrained(job.encoder, job.head)
        check(self.train, self.model)
        check(self.dev, self.model)
        self.criterion = Criterion(experiment.loss, self.task, self.train.labels)
        self.terms = self.criterion.weights(self.train.labels)

    def batch(self, indices: Array, step: int) -> Batch:
        """Return the rows, which are the same at every step."""
        return self.train.batch(indices, self.length)

    def losses(self, batch: Batch) -> torch.Tensor:
        """Return one loss per row, [batch]."""
        logits = self.model(batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.packing)
        return self.criterion.losses(logits, batch.labels)

    def score(self, layout: Layout) -> Scores:
        """Return the task's metrics, the loss and the predictions on the whole split, computed in fp32."""
        # The ranks compute different windows of a document, so windows are gathered first and then pooled.
        batches = layout.share(length_batches(self.dev.lengths, batch_tokens=BATCH_TOKENS))
        own = np.concatenate([np.zeros(0, np.int64), *batches])
        outputs = [batch_logits(self.model, self.dev, indices) for indices in batches]
        own_logits = np.concatenate([np.zeros((0, self.model.spec.outputs), np.float32), *outputs])
        indices = gather_rows(torch.from_numpy(own), "dev.indices").numpy()
        gathered = gather_rows(torch.from_numpy(own_logits), "dev.logits").numpy()
        logits: Array = np.empty((len(self.dev), gathered.shape[1]), gathered.dtype)
        logits[indices] = gathered  # ranks that share their rows have all computed the same
        logits, labels = pool(logits, self.dev.rows), self.dev.labels[self.dev.documents]
        metrics = {**all_metrics(self.task, labels, logits), LOSS: self.criterion.mean(logits, labels)}
        return metrics, distribution(self.task, logits)


class Distilling(FineTuning):
    """Fine-tuning that also learns the logits of a teacher, which rows without a label have as well."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        assert job.teacher
        labeled, self.train, options = self.train, training_rows(job), job.experiment.distillation
        if self.train.largest_id() >= self.model.encoder.config.vocab_size:
            raise BadInput(f"{job.teacher} was made with another tokenizer: run the stage teach again")
        self.temperature, more = options.temperature, len(self.train) - len(labeled)
        self.logits = _logits(job.teacher, self.train, self.model.spec.outputs)
        self.labels = np.concatenate(
            [labeled.labels, np.zeros((more, *labeled.labels.shape[1:]), labeled.labels.dtype)]
        )
        self.hard = np.repeat(np.array([1 - options.weight, 0], np.float32), [len(labeled), more])
        weights = np.concatenate([self.terms, np.zeros(more)])
        self.terms = 1 - self.hard + self.hard * weights

    def batch(self, indices: Array, step: int) -> Batch:
        """Return the rows with the teacher's logits. Those without a label have the label 0, which does not count."""
        logits, hard = torch.from_numpy(self.logits[indices]), torch.from_numpy(self.hard[indices])
        labels = label_tensor(self.labels[indices])
        rows = self.train.batch(indices, self.length)
        return dataclasses.replace(rows, labels=labels, teaching=Teaching(logits, hard))

    def losses(self, batch: Batch) -> torch.Tensor:
        """Return the mean of the two losses of each row, [batch]."""
        assert batch.teaching
        logits = self.model(batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.packing)
        hard = self.criterion.losses(logits, batch.labels)
        soft = distillation(self.task.kind, logits, batch.teaching.logits, self.temperature)
        return torch.lerp(soft, hard, batch.teaching.hard)


def _logits(teacher: Path, rows: TokenTable, outputs: int) -> Array:
    """Return the teacher's logits of the documents that rows belong to, float32 [rows, outputs]."""
    parts = [
        pq.read_table(file)["logits"]
        for name in ("train", "unlabeled")
        if (file := teacher / f"{name}.parquet").exists()
    ]
    logits: Array = np.concatenate([chunk.flatten().to_numpy() for part in parts for chunk in part.chunks])
    if len(logits) != len(rows.documents) * outputs:
        raise BadInput(f"{teacher} has logits of other rows than {rows.folder}: run the stage teach again")
    return np.repeat(logits.reshape(-1, outputs), np.diff(rows.documents, append=len(rows)), axis=0)


class MaskedWords(Objective):
    """Pre-training by predicting hidden words of unlabeled text (Devlin et al. 2019), other words at every step."""

    model: MaskedLanguageModel

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        options = job.experiment.pretraining
        self.metric = "perplexity"
        max_length = job.experiment.preprocessing.max_length
        self.model = MaskedLanguageModel(load_encoder(job.encoder, max_length)).train()
        self.masking = Masking(Vocabulary.read(job.encoder), HIDDEN, options.whole_words, options.seed)
        # With whole words the number of hidden tokens varies from step to step: divide by its expected value.
        self.terms = np.array([self.masking.count(self.train.ids(row)) for row in range(len(self.train))])

    def batch(self, indices: Array, step: int) -> Batch:
        """Return the rows with words hidden; labels [batch, tokens] are the true ids there and IGNORED elsewhere."""
        return self._hide(self.train.batch(indices, self.length), indices, step)

    def losses(self, batch: Batch) -> torch.Tensor:
        """Return one loss per hidden token, [hidden tokens]."""
        hidden = batch.hidden
        assert hidden is not None
        logits = self.model(batch.input_ids, batch.attention_mask, batch.token_type_ids, hidden, batch.packing)
        return functional.cross_entropy(logits, batch.labels.flatten()[hidden], reduction="none")

    @torch.inference_mode()
    def score(self, layout: Layout) -> Scores:
        """Return the mean loss and its exponential, the perplexity, in fp32. Every call hides the same tokens."""
        self.model.eval()
        total = count = 0.0
        for indices in length_batches(self.dev.lengths, batch_tokens=BATCH_TOKENS)[layout.rows :: layout.row_parts]:
            batch = self._hide(self.dev.batch(indices), indices, step=0)
            losses = self.losses(batch.to(self.model.device))
            total, count = total + float(losses.double().sum()), count + len(losses)
        self.model.train()
        total, count = sum_over_ranks((total, count), "dev.losses")
        return {LOSS: total / count, self.metric: float(torch.tensor(total / count).exp())}, {}

    def _hide(self, batch: Batch, indices: Array, step: int) -> Batch:
        labels = torch.full_like(batch.input_ids, IGNORED)
        for position, (row, length) in enumerate(zip(indices, batch.attention_mask.sum(1), strict=True)):
            seen, truth = self.masking.hide(batch.input_ids[position, :length].numpy(), step, int(row))
            batch.input_ids[position, :length] = torch.from_numpy(seen)
            labels[position, :length] = torch.from_numpy(truth)
        hidden = (labels != IGNORED).flatten().nonzero().squeeze(1)  # here, as a GPU would be waited for
        return dataclasses.replace(batch, labels=labels, hidden=hidden)


def build_objective(job: Job) -> Objective:
    """Return the objective of a job. Raises BadInput when encoder, data and experiment do not fit each other."""
    if job.objective == "masked words":
        return MaskedWords(job)
    return Distilling(job) if job.teacher else FineTuning(job)


class BestModel:
    """The best model so far, which lies on disk, its metrics and step, and the number of evaluations since."""

    def __init__(self, folder: Path, patience: int) -> None:
        self.folder = folder
        self._patience = patience
        self.selection = self.metric = math.nan
        self.step = 0
        self.evaluations_since = 0

    def improves(self, selection: float, metric: float, step: int) -> bool:
        """Record an evaluation; return whether its selection metric is the largest so far. NaN is the smallest."""
        was_undefined = math.isnan(self.selection) and not math.isnan(selection)
        if self.step == 0 or selection > self.selection or was_undefined:
            self.selection, self.metric, self.step, self.evaluations_since = selection, metric, step, 0
            return True
        self.evaluations_since += 1
        return False

    @property
    def defined(self) -> bool:
        """Whether the best model's metric is a number."""
        return math.isfinite(self.metric)

    @property
    def out_of_patience(self) -> bool:
        """Whether `patience` evaluations have passed without an improvement; with a patience of 0, never."""
        return 0 < self._patience <= self.evaluations_since

    def save(self, model: EncoderWithHead) -> None:
        """Write the model. The model before it is removed only when this one is complete."""
        fresh = self.folder.with_name(f".{self.folder.name}-fresh")
        shutil.rmtree(fresh, ignore_errors=True)  # a killed process may have left it
        model.save(fresh)
        if self.folder.exists():
            shutil.rmtree(self.folder)
        fresh.rename(self.folder)

    def state_dict(self) -> dict[str, float | None]:
        """Return the best values, with None for NaN. The checkpoint also holds the folder of the model."""
        numbers = {"selection": self.selection, "metric": self.metric}
        known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        return {**known, "step": self.step, "evaluations_since": self.evaluations_since}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Replace the best values."""
        known = {name: math.nan if value is None else value for name, value in state.items()}
        self.selection, self.metric = known["selection"], known["metric"]
        self.step, self.evaluations_since = int(known["step"]), int(known["evaluations_since"])
