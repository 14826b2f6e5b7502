from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from include.stages import BadInput, Transient
from tasks import assets

NAME = "all-MiniLM-L6-v2"


@pytest.fixture
def copied_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one's own, with the small encoder in it."""
    shutil.copytree(assets.encoder_folder(NAME, download=True), tmp_path / "encoders" / NAME)
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path))
    return tmp_path


def test_fetched_files_are_the_published_ones() -> None:
    folder = assets.encoder_folder(NAME, download=True)
    assert {path.name for path in folder.iterdir()} == set(assets.ENCODERS[NAME].files)
    assert assets.corpus_file(download=True).stat().st_size == 1_383_098


def test_truncated_weights_are_refused(copied_cache: Path) -> None:
    weights = copied_cache / "encoders" / NAME / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(BadInput, match=r"model.safetensors is missing or differs from the published one .*make fetch"):
        assets.encoder_folder(NAME, download=False)


def test_offline_names_the_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path))
    with pytest.raises(BadInput, match=r"movieReviewSnippets_GroundTruth.txt is missing: run make fetch, or set"):
        assets.corpus_file(download=False)
    with pytest.raises(BadInput, match=r"config.json is missing: run make fetch SET=.model.name=all-MiniLM-L6-v2"):
        assets.encoder_folder(NAME, download=False)
    with pytest.raises(BadInput, match=r"index.sense is missing: run make fetch SET=.preprocessing.augment=.synonyms"):
        assets.wordnet_fingerprint(download=False)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_archive_is_never_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path))
    package = next(iter(assets.CORPUS.packages))
    monkeypatch.setitem(assets.CORPUS.packages, package, "0" * 64)
    with pytest.raises(Transient, match="cannot fetch vaderSentiment"):
        assets.corpus_file(download=True)
    assert not (tmp_path / "corpora" / "movie-reviews").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "has no config.json: it must contain"),
        ("no-such/model", 'make fetch SET="model.name=no-such/model"'),
        ("two words", "not a folder"),
    ],
)
def test_an_unknown_model_says_how_to_get_one(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BadInput) as error:
        assets.encoder_folder(name, download=False)
    assert message in str(error.value)


def test_a_pipe_in_a_model_folder_is_not_opened(copied_cache: Path) -> None:
    folder = copied_cache / "encoders" / NAME
    os.mkfifo(folder / "head.json")
    with pytest.raises(BadInput, match=r"head\.json is a pipe, a socket or a device, not a file: .* or remove it"):
        assets.encoder_fingerprint(str(folder), False)


def test_a_local_folder_is_a_model(copied_cache: Path) -> None:
    folder = copied_cache / "encoders" / NAME
    assert assets.encoder_folder(str(folder), download=False) == folder
    assert assets.encoder_fingerprint(str(folder), False) == assets.encoder_fingerprint(NAME, False)
    without_head = assets.encoder_fingerprint(str(folder), False)
    (folder / "head.json").write_text("{}")
    assert assets.encoder_fingerprint(str(folder), False) != without_head
    (folder / "tokenizer.json").write_text("{}")
    assert assets.tokenizer_fingerprint(str(folder), False) != assets.ENCODERS[NAME].files["tokenizer.json"]
