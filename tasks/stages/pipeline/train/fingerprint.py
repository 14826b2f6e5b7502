"""What the stage train reads besides its inputs."""

from __future__ import annotations

from include.experiment import Experiment
from include.runs import Run
from tasks.assets import encoder_fingerprint, tokenizer_fingerprint

#: The kinds of models that use the tokenizer of the encoder, and not its weights.
_TOKENIZER_ONLY = ("tfidf", "textcnn")


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return a string that changes whenever what is used of the pretrained encoder changes."""
    if experiment.model.kind in _TOKENIZER_ONLY:
        return tokenizer_fingerprint(experiment.model.name, experiment.runtime)
    return encoder_fingerprint(experiment.model.name, experiment.runtime)
