"""What a training makes small: the model, its batches, their losses, and how the dev split is scored."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch.nn import functional

from tasks.communication.link import sum_over_ranks
from tasks.encoder.batching import Array, Batch, TokenTable, length_batches
from tasks.encoder.masked_lm import MaskedLanguageModel, load_masked_lm
from tasks.encoder.models import Classifier, EncoderWithHead, load_pretrained
from tasks.training.job import Job
from tasks.training.loss import Criterion
from tasks.training.masking import IGNORED, Masking, Vocabulary
from tasks.training.sampler import check
from tasks.training.selection import BATCH_TOKENS, LOSS, score


class Objective(ABC):
    """What fine-tuning and pre-training differ in; the loop is the same.

    Attributes:
        model: what is trained, an encoder with a head, in training mode.
        train: the rows to learn from.
        dev: the rows to choose the best model by.
        terms: what each training row adds to the sum that a batch's mean divides by, [rows]: its losses' weights.
        metric: the name of the one of score's values that training.json shows.
    """

    model: EncoderWithHead
    train: TokenTable
    dev: TokenTable
    terms: Array
    metric: str

    @abstractmethod
    def batch(self, indices: Array, step: int) -> Batch:
        """The training rows at these positions, as this step (counted from 1) sees them."""

    @abstractmethod
    def losses(self, batch: Batch) -> torch.Tensor:
        """All the losses whose mean is the batch's loss, float32, in one dimension."""

    @abstractmethod
    def score(self, rank: int, world: int) -> dict[str, float]:
        """The dev split's metrics, equal on every rank. Each of the `world` ranks computes its part."""

    @abstractmethod
    def goodness(self, metrics: dict[str, float]) -> float:
        """What the best model is chosen by, out of score's values: the larger, the better."""


class FineTuning(Objective):
    """The labels of sentences: classes or scores."""

    model: Classifier

    def __init__(self, job: Job) -> None:
        """Load data and model. Raises BadInput when encoder, data and experiment do not fit each other."""
        experiment = job.experiment
        self.task, self.metric = experiment.task, experiment.task.metric
        self.best_by = experiment.training.best_by
        self.length = experiment.preprocessing.max_length if experiment.batching.kind == "static" else 0
        self.train, self.dev = TokenTable.open(job.data / "train"), TokenTable.open(job.data / "dev")
        self.model = load_pretrained(job.encoder, job.head)
        check(self.train, self.model)
        check(self.dev, self.model)
        self.criterion = Criterion(experiment.loss, self.task, self.train.labels)
        self.terms = self.criterion.weights(self.train.labels)

    def batch(self, indices: Array, step: int) -> Batch:
        """The rows, the same at every step."""
        return self.train.batch(indices, self.length)

    def losses(self, batch: Batch) -> torch.Tensor:
        """A loss a row, [batch]."""
        logits = self.model(batch.input_ids, batch.attention_mask, batch.token_type_ids, batch.packing)
        return self.criterion.losses(logits, batch.labels)

    def score(self, rank: int, world: int) -> dict[str, float]:
        """The task's metrics, and the loss."""
        return score(self.model, self.dev, self.task, self.criterion, rank, world)

    def goodness(self, metrics: dict[str, float]) -> float:
        """The task's main metric, or the loss turned round."""
        return -metrics[LOSS] if self.best_by == "loss" else metrics[self.metric]


class MaskedWords(Objective):
    """The words that are hidden in unlabelled text (Devlin et al. 2019), other ones at every step."""

    model: MaskedLanguageModel

    def __init__(self, job: Job) -> None:
        """Load data and model. Raises BadInput when the encoder is damaged or its tokenizer has no mask token."""
        options, max_length = job.experiment.pretraining, job.experiment.preprocessing.max_length
        self.metric = "perplexity"
        self.length = max_length if job.batching.kind == "static" else 0
        self.train, self.dev = TokenTable.open(job.data / "train"), TokenTable.open(job.data / "dev")
        self.model = load_masked_lm(job.encoder, max_length)
        self.masking = Masking(Vocabulary.read(job.encoder), options.mask_share, options.whole_words, options.seed)
        # Whole words make a batch's number of hidden tokens a matter of chance: the mean divides by what to expect.
        self.terms = np.array([self.masking.count(self.train.ids(row)) for row in range(len(self.train))])

    def batch(self, indices: Array, step: int) -> Batch:
        """The rows with words hidden; labels [batch, tokens] are the true ids there, IGNORED elsewhere."""
        return self._hide(self.train.batch(indices, self.length), indices, step)

    def losses(self, batch: Batch) -> torch.Tensor:
        """A loss a hidden token, [hidden tokens]."""
        hidden = batch.labels != IGNORED
        logits = self.model(batch.input_ids, batch.attention_mask, batch.token_type_ids, hidden, batch.packing)
        return functional.cross_entropy(logits, batch.labels[hidden], reduction="none")

    @torch.inference_mode()
    def score(self, rank: int, world: int) -> dict[str, float]:
        """Mean loss, and e to the power of it, in fp32; the same tokens are hidden every time."""
        self.model.eval()
        total = count = 0.0
        for indices in length_batches(self.dev.lengths, batch_tokens=BATCH_TOKENS)[rank::world]:
            batch = self._hide(self.dev.batch(indices), indices, step=0)
            losses = self.losses(batch.to(self.model.device))
            total, count = total + float(losses.double().sum()), count + len(losses)
        self.model.train()
        total, count = sum_over_ranks((total, count), "dev.losses")
        return {LOSS: total / count, self.metric: float(torch.tensor(total / count).exp())}

    def goodness(self, metrics: dict[str, float]) -> float:
        """The loss turned round."""
        return -metrics[LOSS]

    def _hide(self, batch: Batch, indices: Array, step: int) -> Batch:
        labels = torch.full_like(batch.input_ids, IGNORED)
        for position, (row, length) in enumerate(zip(indices, batch.attention_mask.sum(1), strict=True)):
            seen, truth = self.masking.hide(batch.input_ids[position, :length].numpy(), step, int(row))
            batch.input_ids[position, :length] = torch.from_numpy(seen)
            labels[position, :length] = torch.from_numpy(truth)
        return dataclasses.replace(batch, labels=labels)


def objective(job: Job) -> Objective:
    """The job's objective."""
    return MaskedWords(job) if job.objective == "masked words" else FineTuning(job)
