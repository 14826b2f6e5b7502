"""The stage train: fine-tune the encoder, on Horovod if there are several ranks, or train a baseline (model.kind)."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from include.scratch import scratch_folder
from include.stages import BadInput
from tasks.assets import encoder_fingerprint, encoder_folder, tokenizer_fingerprint
from tasks.context import Context, Outcome
from tasks.encoder import lexicon
from tasks.encoder.base_model import base_model
from tasks.encoder.spec import BASE_MODEL, TEMPERATURE, THRESHOLDS

if TYPE_CHECKING:
    from tasks.training.job import Job

#: The kinds of models that use the tokenizer of the encoder, and not its weights.
_TOKENIZER_ONLY = ("tfidf", "textcnn")


def plan(experiment: Experiment, run: Run) -> str:
    """Return a text that changes whenever what is used of the pretrained encoder changes."""
    of = tokenizer_fingerprint if experiment.model.kind in _TOKENIZER_ONLY else encoder_fingerprint
    return of(experiment.model.name, experiment.runtime) + lexicon.fingerprint(experiment.model.lexicon)


def run(context: Context, plan: str) -> Outcome:
    """Write model/, metrics.jsonl and training.json."""
    from tasks.scoring.slices import check_gate
    from tasks.training.job import Job

    experiment = context.experiment
    check_gate(experiment, context.inputs["preprocess"].path / "dev")
    pretrained = context.inputs["pretrain"].path / "model"
    teach = context.inputs.get("teach")
    original = encoder_folder(experiment.model.name, experiment.runtime)
    encoder = pretrained if pretrained.is_dir() else original
    with scratch_folder(context.output, "lexicon") as folder:
        job = Job(
            experiment,
            encoder=lexicon.write_encoder(encoder, experiment.model.lexicon, folder),
            data=context.inputs["preprocess"].path,
            output=context.output,
            checkpoints=context.checkpoints,
            teacher=teach.path if teach else None,
            terminal=sys.stderr.isatty(),
            pause=context.pause,
        )
        _train(job, context)
    model = context.output / "model"
    values = {BASE_MODEL: asdict(base_model(experiment.model.name, experiment.runtime))}
    if experiment.task.kind != "regression":
        values |= _calibrate(model, context.inputs["preprocess"].path / "dev")
    _add(model, values)
    return Outcome(json.loads((context.output / "training.json").read_text(encoding="utf-8")))


def _train(job: Job, context: Context) -> None:
    """Write model/, metrics.jsonl and training.json of a model of any kind."""
    kind = job.experiment.model.kind
    if kind in ("tfidf", "frozen"):
        from tasks.baselines.training import train

        train(job)
        return
    from tasks.launching.launch import launch
    from tasks.training.sampler import planned_steps

    context.tell_steps(planned_steps(job))
    profiles = context.run.folder / "profiles" / "train"
    if kind == "encoder":
        launch(job, profiles=profiles)
        return
    from tasks.baselines.word_vectors import write_text_cnn

    with scratch_folder(job.output, "text-cnn") as folder:
        launch(write_text_cnn(job, folder), profiles=profiles)


def _calibrate(folder: Path, dev: Path) -> dict[str, Any]:
    """Divide the model's logits by the temperature that fits the dev rows best, and return what was fitted to them.

    That is the temperature and, for a multi-label model, from which calibrated probability it predicts each label. A
    training that starts from a calibrated model goes on from its divided head, and gets a temperature of its own.
    """
    import numpy as np

    from tasks.encoder.batching import TokenTable
    from tasks.encoder.loading import load_trained
    from tasks.encoder.models import divide_logits, predict_logits
    from tasks.scoring.calibration import fit_temperature
    from tasks.scoring.predictions import probabilities
    from tasks.scoring.thresholds import tune

    table, model = TokenTable.open(dev), load_trained(folder)
    kind, labels, logits = model.spec.kind, table.labels[table.documents], predict_logits(model, table)
    if not np.isfinite(logits).all():
        raise BadInput("the model's logits are not finite, so its training diverged: lower training.learning_rate")
    temperature = fit_temperature(kind, labels, logits)
    divide_logits(folder, model, temperature)
    found: dict[str, Any] = {TEMPERATURE: temperature}
    if kind == "multilabel":
        found[THRESHOLDS] = tune(labels, probabilities(kind, logits / temperature)).tolist()
    return found


def _add(model: Path, values: dict[str, Any]) -> None:
    """Write values into the model's config.json."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    write_json(model / "config.json", config | values)
