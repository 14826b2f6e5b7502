"""The command `fetch`: download and check in advance everything that an experiment's stages will read."""

from __future__ import annotations

import logging
import os

from include.experiment import Experiment
from include.folders import user_path
from include.search_space import texts_of
from include.stages import BadInput
from tasks.assets import encoder_folder, wordnet_folder
from tasks.encoder.lexicon import lexicon_file, read_terms
from tasks.sources import open_source
from tasks.sources.describe import describe
from tasks.sources.documents import check_file

log = logging.getLogger(__name__)


def fetch(experiment: Experiment) -> None:
    """Fetch the encoder, the data and, if the experiment uses it, WordNet, and look for unlabeled texts."""
    data, terms = experiment.data, experiment.model.lexicon
    texts = {"pretraining.text": experiment.pretraining.text, "distillation.text": experiment.distillation.text}
    if data.source == "bundled" and data.path:
        raise BadInput(
            f"data.path names {data.path}, but the experiment trains on bundled data: choose an experiment for this "
            "folder, such as sst2 or your own YAML file, name the columns of your own files (TEXT, LABEL), or leave "
            "data.path (DATA) empty"
        )
    for field, text in texts.items():
        if text and _is_here(text):
            check_file(user_path(text), field)
    if terms and _is_here(terms):
        read_terms(lexicon_file(terms))
    online = experiment.runtime.model_copy(update={"download": True})
    for name in texts_of(experiment, "model.name"):
        log.info("encoder: %s", encoder_folder(name, online))
    if "synonyms" in experiment.preprocessing.augment:
        log.info("WordNet: %s", wordnet_folder(online))
    source = open_source(experiment.model_copy(update={"runtime": online}))
    log.info("data: sha256 %s", source.fingerprint())
    if not experiment.data.is_described:
        describe(experiment)


def _is_here(path: str) -> bool:
    """Return whether stages see a path as this process does: they may see data/ at another place."""
    return not os.environ.get("SPARK_BERT_DATA") or user_path(path).is_absolute()
