"""Train a model whose encoder is given, so that only its head is to be fitted."""

from __future__ import annotations

import json
import logging
import time

import torch

from include.artifacts import write_json
from tasks.baselines.regression import fit
from tasks.baselines.rows import OnePartition
from tasks.baselines.vectors import frozen, tfidf
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.loading import copy_tokenizer
from tasks.encoder.models import Classifier, predict_logits
from tasks.launching.tuning import limit_threads
from tasks.scoring.metrics import all_metrics, as_json
from tasks.scoring.predictions import distribution
from tasks.training.job import METRICS, Job
from tasks.training.loss import Criterion
from tasks.training.meter import memory_use
from tasks.training.objectives import LOSS
from tasks.training.sampler import check

log = logging.getLogger(__name__)
_ENCODERS = {"tfidf": tfidf, "frozen": frozen}


def train(job: Job) -> None:
    """Fit the head, and write what a training by the engine writes: model/, metrics.jsonl and training.json."""
    limit_threads()
    experiment = job.experiment
    train, dev = (TokenTable.open(job.data / split) for split in ("train", "dev"))
    with OnePartition.of(experiment, job.output) as to_spark:
        started = time.monotonic()
        model, vectors = _ENCODERS[experiment.model.kind](job, train)
        check(dev, model)
        labels = train.labels[train.documents]
        criterion = Criterion(experiment.loss, experiment.task, labels)
        log.info("fitting %d features to %d rows", vectors.shape[1], len(labels))
        weights = criterion.weights(labels)
        found = fit(to_spark, experiment.task, vectors, _targets(model, labels), weights)
        with torch.no_grad():
            model.output_layer.weight.copy_(torch.tensor(found.weights))
            model.output_layer.bias.copy_(torch.tensor(found.biases))
        seconds = time.monotonic() - started
    logits = predict_logits(model, dev)
    wanted = dev.labels[dev.documents]
    numbers = as_json({**all_metrics(experiment.task, wanted, logits), LOSS: criterion.mean(logits, wanted)})
    where = {"step": 1, "epoch": 1.0, "time": round(time.time(), 3)}
    line = {**where, **numbers, **distribution(experiment.task, logits)}
    (job.output / METRICS).write_text(json.dumps(line) + "\n", encoding="utf-8")
    model.save(job.output / "model")
    copy_tokenizer(job.encoder, job.output / "model", model, job.head.max_length)
    summary = {  # as far as it has a meaning without steps
        "metric": experiment.task.metric,
        "best": numbers[experiment.task.metric],
        "rows_per_second": round(len(labels) / seconds, 1),
        "seconds": round(seconds, 1),
        **memory_use(model.device),
        "ranks": 1,
        "threads": torch.get_num_threads(),
        "device": model.device.type,
        "precision": "fp32",
        "torch": torch.__version__,
    }
    write_json(job.output / "training.json", summary)


def _targets(model: Classifier, labels: Array) -> Array:
    """Return what the head is to predict: scores are positions within their range, as Classifier explains."""
    if model.spec.score_range is None:
        return labels
    low, high = model.spec.score_range
    return (labels - low) / (high - low) - 0.5
