"""The stage train: fine-tune the encoder, on Horovod if there are several ranks, and keep the best model."""

from __future__ import annotations

import json
import sys

from include.experiment import Experiment
from include.runs import Run
from tasks.assets import encoder_fingerprint, encoder_folder
from tasks.context import Context, Outcome
from tasks.launching.launch import launch
from tasks.training.job import Job


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return a string that changes whenever the pretrained encoder changes."""
    return encoder_fingerprint(experiment.model.name, experiment.runtime)


def run(context: Context) -> Outcome:
    """Write model/, metrics.jsonl and training.json.

    Raises:
        BadInput: If the data or the encoder cannot be used with the experiment.
    """
    experiment = context.experiment
    pretrained = context.inputs["pretrain"].path / "model"
    original = encoder_folder(experiment.model.name, experiment.runtime)
    launch(
        Job(
            experiment,
            encoder=pretrained if pretrained.is_dir() else original,
            data=context.inputs["preprocess"].path,
            output=context.output,
            checkpoints=context.checkpoints,
            terminal=sys.stderr.isatty(),
        )
    )
    return Outcome(json.loads((context.output / "training.json").read_text(encoding="utf-8")))
