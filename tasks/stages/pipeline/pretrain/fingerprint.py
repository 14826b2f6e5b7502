"""What the stage pretrain reads besides its inputs."""

from __future__ import annotations

from include.experiment import Experiment
from include.paths import user_path
from include.runs import Run
from tasks import outside
from tasks.assets import encoder_fingerprint
from tasks.stages.pipeline.pretrain.text import check_file


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return a string that changes whenever the text or the pretrained encoder changes; "" without a text."""
    if not experiment.pretraining.text:
        return ""
    file = user_path(experiment.pretraining.text)
    check_file(file)
    return f"{outside.digest(file)}-{encoder_fingerprint(experiment.model.name, experiment.runtime)}"
