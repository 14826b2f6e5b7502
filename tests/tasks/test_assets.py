from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from include.artifacts import sha256
from include.fields.ranks import Runtime
from include.stages import BadInput, Transient
from tasks import assets
from tasks.encoder.loading import load_encoder

NAME = "all-MiniLM-L6-v2"
ONLINE, OFFLINE = Runtime(download=True), Runtime(download=False)


@pytest.fixture
def copied_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one's own, with the small encoder in it."""
    shutil.copytree(assets.encoder_folder(NAME, ONLINE), tmp_path / "encoders" / NAME)
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path))
    return tmp_path


def test_fetched_files_are_the_published_ones() -> None:
    folder = assets.encoder_folder(NAME, ONLINE)
    assert {path.name for path in folder.iterdir() if path.suffix} >= {*assets.ENCODERS[NAME].files}
    assert assets.corpus_file(ONLINE).stat().st_size == 1_383_098


def test_truncated_weights_are_refused(copied_cache: Path) -> None:
    weights = copied_cache / "encoders" / NAME / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(BadInput, match=r"model.safetensors is missing or differs from the published one .*make fetch"):
        assets.encoder_folder(NAME, OFFLINE)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are hashed from now on."""
    names: list[str] = []

    def noted(file: Path) -> str:
        names.append(file.name)
        return sha256(file)

    monkeypatch.setattr(assets, "sha256", noted)
    return names


def test_unchanged_files_are_hashed_once(copied_cache: Path, hashed: list[str]) -> None:
    folder = assets.encoder_folder(NAME, OFFLINE)
    (folder / assets.CHECKED).unlink()
    assets.encoder_folder(NAME, OFFLINE)
    every = [*assets.ENCODERS[NAME].files]
    assert hashed == every
    assets.encoder_folder(NAME, OFFLINE)
    assert hashed == every
    assets.encoder_folder(NAME, Runtime(full_check=True))
    assert hashed == [*every, *every]


def test_a_touched_file_is_hashed_again(copied_cache: Path, hashed: list[str]) -> None:
    folder = assets.encoder_folder(NAME, OFFLINE)
    (folder / "config.json").touch()
    hashed.clear()
    assets.encoder_folder(NAME, OFFLINE)
    assert "config.json" in hashed


def test_a_release_with_another_digest_does_not_trust_an_earlier_check(
    copied_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets.encoder_folder(NAME, OFFLINE)
    monkeypatch.setitem(assets.ENCODERS[NAME].files, "config.json", "0" * 64)
    with pytest.raises(BadInput, match=r"config\.json is missing or differs"):
        assets.encoder_folder(NAME, OFFLINE)


@pytest.mark.parametrize("record", ["", "[]", json.dumps({"config.json": None})])
def test_a_damaged_record_of_checks_is_made_anew(record: str, copied_cache: Path, hashed: list[str]) -> None:
    folder = assets.encoder_folder(NAME, OFFLINE)
    (folder / assets.CHECKED).write_text(record)
    hashed.clear()
    assets.encoder_folder(NAME, OFFLINE)
    assets.encoder_folder(NAME, OFFLINE)
    assert hashed == [*assets.ENCODERS[NAME].files]


def test_offline_names_the_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path))
    with pytest.raises(BadInput, match=r"movieReviewSnippets_GroundTruth.txt is missing: run make fetch, or set"):
        assets.corpus_file(OFFLINE)
    with pytest.raises(BadInput, match=r"config.json is missing: run make fetch SET=.model.name=all-MiniLM-L6-v2"):
        assets.encoder_folder(NAME, OFFLINE)
    with pytest.raises(BadInput, match=r"index.sense is missing: run make fetch SET=.preprocessing.augment=.synonyms"):
        assets.wordnet_fingerprint(OFFLINE)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_archive_is_never_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path))
    package = next(iter(assets.CORPUS.packages))
    monkeypatch.setitem(assets.CORPUS.packages, package, "0" * 64)
    with pytest.raises(Transient, match="cannot fetch vaderSentiment"):
        assets.corpus_file(ONLINE)
    assert not (tmp_path / "corpora" / "movie-reviews").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "has no config.json: it must contain"),
        ("no-such/model", 'make fetch SET="model.name=no-such/model"'),
        ("two words", "and not a name that a model on the hub can have"),
    ],
)
def test_an_unknown_model_says_how_to_get_one(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BadInput) as error:
        assets.encoder_folder(name, OFFLINE)
    assert message in str(error.value)


def test_a_hub_that_cannot_be_reached_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(Transient, match=r"the hub cannot be reached\. .*config\.json, model\.safetensors, "):
        assets.encoder_folder("bert-base-uncased", ONLINE)


@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification"])
def test_a_folder_in_an_older_format_says_how_to_convert_it(tmp_path: Path, kind: str) -> None:
    import transformers

    folder = tmp_path / "it's $HOME"
    sizes = transformers.BertConfig(vocab_size=7, hidden_size=4, num_hidden_layers=1, num_attention_heads=1)
    model = getattr(transformers, kind)(sizes)
    model.save_pretrained(folder)  # which writes into config.json what it is
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ngood\nbad\n")
    with pytest.raises(BadInput) as error:
        assets.encoder_folder(str(folder), OFFLINE)
    commands = re.findall(r"python -c (.*?)(?:\. To make |$)", str(error.value))
    assert len(commands) == 2
    for command in commands:
        [code] = shlex.split(command)
        exec(code)  # what a person is asked to run
    assert assets.encoder_folder(str(folder), OFFLINE) == folder
    assert load_encoder(folder, 8).config.vocab_size == 7
    assert load_file(folder / "model.safetensors").keys() == model.state_dict().keys()  # also those of the head


def test_a_pipe_in_a_model_folder_is_not_opened(copied_cache: Path) -> None:
    folder = copied_cache / "encoders" / NAME
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(BadInput, match=r"has no config\.json: it must contain"):
        assets.encoder_fingerprint(str(folder), OFFLINE)


def test_a_local_folder_is_a_model(copied_cache: Path) -> None:
    folder = copied_cache / "encoders" / NAME
    assert assets.encoder_folder(str(folder), OFFLINE) == folder
    assert assets.encoder_fingerprint(str(folder), OFFLINE) == assets.encoder_fingerprint(NAME, OFFLINE)
    before = assets.encoder_fingerprint(str(folder), OFFLINE)
    (folder / "config.json").write_text("{}")
    assert assets.encoder_fingerprint(str(folder), OFFLINE) != before
    (folder / "tokenizer.json").write_text("{}")
    assert assets.tokenizer_fingerprint(str(folder), OFFLINE) != assets.ENCODERS[NAME].files["tokenizer.json"]
