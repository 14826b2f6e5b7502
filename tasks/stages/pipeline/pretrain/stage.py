"""The stage pretrain: masked language modeling on unlabeled text, if the experiment names one, as a start for train."""

from __future__ import annotations

import json
import logging
import math
import sys
from pathlib import Path
from typing import Any

from include.experiment import Experiment
from include.fields.training import Loss, Model, Training
from include.folders import user_path
from include.runs import Run
from include.scratch import scratch_folder
from include.stages import SHARED_WITH_PRETRAINING, BadInput
from tasks.assets import encoder_fingerprint, encoder_folder
from tasks.context import Context, Outcome
from tasks.encoder import lexicon
from tasks.sources.documents import digest_of, splits

log = logging.getLogger(__name__)


def plan(experiment: Experiment, run: Run) -> str:
    """Return a text that changes whenever text, pretrained encoder or lexicon change; "" without a text."""
    if not experiment.pretraining.text:
        return ""
    text = digest_of(experiment.pretraining.text, "pretraining.text")
    encoder = encoder_fingerprint(experiment.model.name, experiment.runtime)
    return f"{text}-{encoder}{lexicon.fingerprint(experiment.model.lexicon)}"


def run(context: Context, plan: str) -> Outcome:
    """Write blocks/ (token ids), model/ (the encoder), metrics.jsonl and training.json, if there is a text."""
    if not plan:
        log.info("no pre-training, because pretraining.text is not set")
        return Outcome({"pretrained": False})
    experiment = context.experiment
    encoder = encoder_folder(experiment.model.name, experiment.runtime)
    with scratch_folder(context.output, "lexicon") as folder:
        return _pretrain(context, lexicon.write_encoder(encoder, experiment.model.lexicon, folder))


def _pretrain(context: Context, encoder: Path) -> Outcome:
    from tasks.launching.launch import launch
    from tasks.training.job import Job
    from tasks.training.sampler import planned_steps

    experiment = context.experiment
    counts = _cut(experiment, encoder, context.output / "blocks")
    job = Job(
        settings(experiment),
        encoder=encoder,
        data=context.output / "blocks",
        output=context.output,
        objective="masked words",
        checkpoints=context.checkpoints,
        terminal=sys.stderr.isatty(),
    )
    context.tell_steps(planned_steps(job))
    launch(job, profiles=context.run.folder / "profiles" / "pretrain")
    training = json.loads((context.output / "training.json").read_text(encoding="utf-8"))
    perplexity = training["best"]
    loss = perplexity and math.log(perplexity)
    return Outcome({"pretrained": True, "loss": loss, "perplexity": perplexity, **training, **counts})


def settings(experiment: Experiment) -> Experiment:
    """Return the experiment with pre-training's settings in its training section.

    Sparse gradients are off, because the decoder shares the weights of the word embeddings. Fields that only
    fine-tuning reads have their defaults, so that changing them does not invalidate the checkpoints of a pre-training.
    """
    own = experiment.pretraining.model_dump(include={"epochs", "batch_size", "learning_rate", "seed"})
    shared = experiment.training.model_dump(include=set(SHARED_WITH_PRETRAINING))
    training = Training(**own, **shared, patience=0, sparse_embeddings=False)
    model = Model(name=experiment.model.name)
    return experiment.model_copy(update={"training": training, "model": model, "loss": Loss()})


def _cut(experiment: Experiment, encoder: Path, folder: Path) -> dict[str, Any]:
    """Write the blocks of the text, and return the numbers of documents, blocks and tokens of each split."""
    from tasks.stages.pipeline.pretrain.blocks import BlockWriter

    options, file = experiment.pretraining, user_path(experiment.pretraining.text)
    writer = BlockWriter(encoder, experiment.preprocessing.max_length)
    counts = {split: writer.write(texts, folder / split) for split, texts in splits(file, options.seed).items()}
    for split, count in counts.items():
        log.info("%s: %d documents, %d blocks, %d tokens", split, *count.values())
    if not counts["dev"]["blocks"]:
        raise BadInput(f"{file}: the tokenizer knows no word of the dev documents: add more text")
    blocks, fixed = counts["train"]["blocks"], experiment.batching.kind in ("length", "static")
    if blocks < (options.batch_size if fixed else 1):
        raise BadInput(
            f"pretraining.batch_size is {options.batch_size}, but {file} has only {blocks} blocks to train on: reduce "
            "the batch size, or add more text"
        )
    return {name: {split: count[name] for split, count in counts.items()} for name in ("documents", "blocks", "tokens")}
