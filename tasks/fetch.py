"""The command `fetch`: download and check in advance everything that an experiment's stages will read."""

from __future__ import annotations

import logging
import os

from include.experiment import Experiment
from include.folders import check_file, user_path
from include.stages import BadInput
from tasks.assets import encoder_folder, wordnet_folder
from tasks.sources import open_source
from tasks.sources.describe import describe

log = logging.getLogger(__name__)


def fetch(experiment: Experiment) -> None:
    """Fetch the encoder, the data and, if the experiment uses it, WordNet, and look for the text for pre-training."""
    data, text = experiment.data, experiment.pretraining.text
    if data.source == "bundled" and data.path:
        raise BadInput(
            f"data.path names {data.path}, but the experiment trains on bundled data: choose an experiment for this "
            "folder, such as sst2 or your own YAML file, name the columns of your own files (TEXT, LABEL), or leave "
            "data.path (DATA) empty"
        )
    # Stages may see data/ at another place than this process does.
    if text and not (os.environ.get("SPARK_BERT_DATA") and not user_path(text).is_absolute()):
        check_file(user_path(text), "put the text there, or correct pretraining.text")
    online = experiment.runtime.model_copy(update={"download": True})
    log.info("encoder: %s", encoder_folder(experiment.model.name, online))
    if "synonyms" in experiment.preprocessing.augment:
        log.info("WordNet: %s", wordnet_folder(online))
    source = open_source(experiment.model_copy(update={"runtime": online}))
    log.info("data: sha256 %s", source.fingerprint())
    if not experiment.data.is_described:
        describe(experiment)
