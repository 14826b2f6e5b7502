"""What the stage preprocess reads besides its inputs."""

from __future__ import annotations

from include.experiment import Experiment
from include.runs import Run
from tasks.assets import tokenizer_fingerprint, wordnet_fingerprint


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return a string that changes whenever the tokenizer changes, or WordNet if it is used."""
    tokenizer = tokenizer_fingerprint(experiment.model.name, experiment.runtime)
    if "synonyms" in experiment.preprocessing.augment:
        return f"{tokenizer}-{wordnet_fingerprint(experiment.runtime)}"
    return tokenizer
