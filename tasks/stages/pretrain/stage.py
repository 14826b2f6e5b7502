"""Pretrain: masked language modelling on unlabelled text, when the experiment names one; train starts from there."""

from __future__ import annotations

import json
import logging
import math
import sys
from pathlib import Path
from typing import Any

from include.artifacts import sha256
from include.experiment import Experiment
from include.paths import user_path
from include.runs import Run
from include.sections import Loss, Model, Training
from include.stages import SHARED_WITH_PRETRAINING, BadInput
from tasks.assets import encoder_fingerprint, encoder_folder
from tasks.context import Context, Outcome
from tasks.launching.launch import launch
from tasks.stages.pretrain.blocks import BlockWriter
from tasks.stages.pretrain.text import check_file, splits
from tasks.training.job import Job

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Of the text and the pretrained encoder; "" when there is nothing to do."""
    if not experiment.pretraining.text:
        return ""
    file = _text(experiment)
    check_file(file)
    return f"{sha256(file)}-{encoder_fingerprint(experiment.model.name, experiment.runtime.download)}"


def run(context: Context) -> Outcome:
    """Write blocks/ (the text in token ids), model/ (the encoder), metrics.jsonl and training.json.

    Without a text, write nothing. Raises BadInput for a text or an encoder that cannot be used.
    """
    experiment = context.experiment
    if not experiment.pretraining.text:
        log.info("no pre-training: pretraining.text names no file")
        return Outcome({"pretrained": False})
    encoder = encoder_folder(experiment.model.name, experiment.runtime.download)
    counts = _cut(experiment, encoder, context.output / "blocks")
    launch(
        Job(
            settings(experiment),
            encoder=encoder,
            data=context.output / "blocks",
            output=context.output,
            objective="masked words",
            checkpoints=context.checkpoints,
            terminal=sys.stderr.isatty(),
        )
    )
    training = json.loads((context.output / "training.json").read_text(encoding="utf-8"))
    perplexity = training["best"]
    loss = perplexity and math.log(perplexity)
    return Outcome({"pretrained": True, "loss": loss, "perplexity": perplexity, **training, **counts})


def settings(experiment: Experiment) -> Experiment:
    """The experiment whose section training is pre-training's, which goes to its end and keeps the best encoder.

    The decoder is the word embeddings, so that their gradient is dense. What only fine-tuning reads is left at its
    defaults, so that a change there does not keep a pre-training from going on from its checkpoints.
    """
    own = experiment.pretraining.model_dump(include={"epochs", "batch_size", "learning_rate", "seed"})
    shared = experiment.training.model_dump(include=set(SHARED_WITH_PRETRAINING))
    training = Training(**own, **shared, patience=0, sparse_embeddings=False)
    model = Model(name=experiment.model.name)
    return experiment.model_copy(update={"training": training, "model": model, "loss": Loss()})


def _cut(experiment: Experiment, encoder: Path, folder: Path) -> dict[str, Any]:
    """Write the text's blocks; how many documents and tokens there are, by split."""
    options, file = experiment.pretraining, _text(experiment)
    writer = BlockWriter(encoder, experiment.preprocessing.max_length)
    counts = {split: writer.write(texts, folder / split) for split, texts in splits(file, options.seed).items()}
    for split, count in counts.items():
        log.info("%s: %d documents, %d blocks, %d tokens", split, *count.values())
    fixed = experiment.batching.kind in ("length", "static")
    _check(counts["train"]["blocks"], counts["dev"]["blocks"], options.batch_size if fixed else 1, file)
    return {name: {split: count[name] for split, count in counts.items()} for name in ("documents", "blocks", "tokens")}


def _check(train: int, dev: int, batch_size: int, file: Path) -> None:
    if not dev:
        raise BadInput(f"{file}: the tokenizer knows no word of the documents to measure with: give it more text")
    if train < batch_size:
        raise BadInput(
            f"pretraining.batch_size is {batch_size}, but {file} makes {train} blocks to learn from: write less, "
            "or give it more text"
        )


def _text(experiment: Experiment) -> Path:
    return user_path(experiment.pretraining.text)
