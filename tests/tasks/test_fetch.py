from __future__ import annotations

import pytest

from include.fields.ranks import Runtime
from include.named_experiments import load
from include.stages import BadInput
from tasks import assets
from tasks.fetch import fetch

OFFLINE = Runtime(download=False)


def test_what_an_experiment_needs_is_fetched() -> None:
    fetch(load("movies", ["preprocessing.augment=[synonyms]"]))
    assert assets.encoder_folder("all-MiniLM-L6-v2", OFFLINE).is_dir()
    assert assets.corpus_file(OFFLINE).is_file()
    assert assets.wordnet_folder(OFFLINE).is_dir()


def test_a_folder_that_is_not_there_is_said() -> None:
    with pytest.raises(BadInput, match="/nowhere"):
        fetch(load("sst2", ["data.path=/nowhere"]))
    with pytest.raises(BadInput, match=r"names /my/data, but the experiment trains on bundled data: .* \(DATA\) empty"):
        fetch(load("movies", ["data.path=/my/data"]))
    with pytest.raises(BadInput, match=r"/nowhere.txt .*or correct pretraining.text"):
        fetch(load("movies", ["pretraining.text=/nowhere.txt"]))
    with pytest.raises(BadInput, match="/nowhere"):
        fetch(load("movies", ["search.space={model.name: [all-MiniLM-L6-v2, /nowhere]}"]))
