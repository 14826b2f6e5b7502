from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from include.fields.ranks import Runtime
from include.named_experiments import build
from tasks.encoder.base_model import BaseModel, base_model, recorded
from tasks.encoder.spec import BASE_MODEL
from tasks.stages.upkeep.publish.card import model_card

STSB = {"data": {"task": "STS-B", "source": "glue", "path": "glue"}, "model": {"pooling": "mean"}}
PART = {"about": "up to 9 words", "rows": 40, "metric": "pearson", "pearson": 0.5}
EVIDENCE: dict[str, Any] = {
    "summary": {
        "metrics": {"pearson": 0.75, "spearman": None}, "interval": [0.7, 0.8], "baseline": {"pearson": None},
        "rows": 1500, "slices": {"length:short": PART, "length:long": {**PART, "about": "x|y", "pearson": None}},
    },
    "gate": {"checks": [{"key": "gate.pearson", "value": 0.75, "threshold": 0.7}]},
    "rows": {"train": 5749, "dev": 1500, "test": 1379},
    "data": {"version": "0123456789abcdef", "fingerprint": "f00d"},
    "training": {"precision": "fp32", "compression": "none", "ranks": 2, "torch": "2.13.0"},
    "settings": {
        "model": {"pooling": "mean"},
        "training": {
            "epochs": 3, "batch_size": 32, "learning_rate": 5e-5, "seed": 1, "lora_rank": 8, "lora_targets": "all",
        },
    },
    "preprocessing": {"max_length": 64, "clean": ["html", "lowercase"]},
    "thresholds": (0.4, 0.6),
    "revision": "abc",
}  # fmt: skip
BASE = base_model("all-MiniLM-L6-v2", Runtime())


def test_a_regression_of_pairs() -> None:
    card = model_card(build(STSB, "test"), EVIDENCE, BASE, "me/similarity")
    _, header, text = card.split("---\n", 2)
    values = yaml.safe_load(header)
    assert (values["base_model"], values["license"]) == ("sentence-transformers/all-MiniLM-L6-v2", "apache-2.0")
    (result,) = values["model-index"][0]["results"]
    assert result["dataset"] == {"name": "STS-B", "type": "nyu-mll/glue", "config": "stsb", "split": "validation"}
    assert result["metrics"] == [{"type": "pearson", "value": 0.75}]
    assert "predicts a score from 0 to 5 for a pair of texts" in " ".join(text.split())
    assert 'model="me/similarity", trust_remote_code=True)' in text and '"text_pair"' in text
    assert "| pearson | 0.7500 | 0.7000 to 0.8000 | undefined |" in text
    assert "| gate.pearson | 0.7500 | at least 0.7000 |" in text and "calibrated" not in text
    assert "| LoRA | rank 8, all linear layers |" in text
    assert "html, lowercase" in text and "| x\\|y | 40 | pearson | undefined |" in text
    assert "weakest on the one that is up to 9 words (0.5000)" in text


def test_a_model_is_named_after_its_table() -> None:
    table = {"source": "iceberg", "path": "sqlite:////data/catalog.db", "table": "prod.shop.reviews"}
    own = build({"data": {"task": "regression", "score_range": [0, 5], **table}, "gate": {"pearson": 0.7}}, "test")
    _, header, _ = model_card(own, EVIDENCE, BASE, "me/reviews").split("---\n", 2)
    assert yaml.safe_load(header)["model-index"][0]["name"] == "all-MiniLM-L6-v2 for prod.shop.reviews"


def test_a_card_says_what_happens_to_long_texts() -> None:
    cut = " ".join(model_card(build(STSB, "test"), EVIDENCE, BASE, "me/similarity").split())
    assert "Inputs of more than 64 tokens are truncated." in cut and "windows" not in cut
    divided = {**EVIDENCE["preprocessing"], "long": "windows", "stride": 16}
    card = model_card(build(STSB, "test"), {**EVIDENCE, "preprocessing": divided}, BASE, "me/similarity")
    assert "into windows of that length, of which neighbors share 16 tokens" in " ".join(card.split())


def test_several_labels_have_their_thresholds() -> None:
    data = {"task": "multi-label", "source": "files", "path": "data/films", "labels": ["acting", "plot"]}
    summary = {**EVIDENCE["summary"], "metrics": {"f1_micro": 0.75}, "baseline": {}}
    summary["calibration"] = {"ece": 0.0123, "before": {"ece": 0.0789}}
    wanted = build({"data": data, "model": {"pooling": "native"}}, "test")
    card = model_card(wanted, {**EVIDENCE, "summary": summary}, BASE, "me/films")
    assert "thresholds that were tuned on other rows" in card
    assert "assigns any of 2 labels to a text" in " ".join(card.split())
    assert "is 0.0123 on rows that the temperature was not fitted to; before, it was 0.0789" in " ".join(card.split())
    summary["calibration"] = {"ece": 0.0123}  # as an older revision wrote it, which calibrated no model
    assert "calibrated" not in model_card(wanted, {**EVIDENCE, "summary": summary}, BASE, "me/films")
    assert "| 1 | plot | 0.6000 |" in card and 'model="me/films", top_k=None)' in card


def test_a_native_head_needs_no_code_of_the_model() -> None:
    native = build({**STSB, "model": {"pooling": "native"}}, "test")
    assert "trust_remote_code" not in model_card(native, EVIDENCE, BASE, "me/similarity")


def test_texts_that_were_not_cleaned_have_no_rules() -> None:
    plain = {**EVIDENCE, "preprocessing": {"max_length": 64, "clean": []}}
    assert "cleaned" not in model_card(build(STSB, "test"), plain, BASE, "me/similarity")


@pytest.mark.parametrize(
    ("header", "license"),
    [
        ("---\nlicense: mit\n---\n# Encoder", "mit"),
        ("---\nlanguage: en\n---\n", ""),
        ("# No header", ""),
        ("---\n- a list\n---\n", ""),
        ("---\n: [\n---\n", ""),
        (None, ""),
    ],
)
def test_the_license_of_a_folder_is_that_of_its_own_card(tmp_path: Path, header: str | None, license: str) -> None:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    if header is not None:
        (tmp_path / "README.md").write_text(header)
    assert base_model(str(tmp_path), Runtime()) == BaseModel(tmp_path.name, "", license)


def test_an_encoder_that_is_no_longer_here_has_an_unknown_license(tmp_path: Path) -> None:
    assert base_model(str(tmp_path / "gone"), Runtime()).license == ""


def test_a_model_that_continues_another_keeps_its_encoder_and_license(tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text(json.dumps({BASE_MODEL: asdict(BASE)}))
    assert recorded(tmp_path) == BASE
    found = base_model(str(tmp_path), Runtime())
    assert found == replace(BASE, continued=True)
    (tmp_path / "config.json").write_text(json.dumps({BASE_MODEL: asdict(found)}))  # and so on
    assert base_model(str(tmp_path), Runtime()) == found
    card = model_card(build({**STSB, "model": {"name": str(tmp_path)}}, "test"), EVIDENCE, found, "me/similarity")
    assert "started from an earlier fine-tuned model" in card and "earlier" not in model_card(
        build(STSB, "test"), EVIDENCE, BASE, "me/similarity"
    )
    values = yaml.safe_load(card.split("---")[1])
    assert (values["base_model"], values["license"]) == ("sentence-transformers/all-MiniLM-L6-v2", "apache-2.0")
    assert "[all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2), fine-tuned" in card


@pytest.mark.parametrize("config", ["{", "[]", "{}", '{"base_model": "bert"}', '{"base_model": {"name": "bert"}}'])
def test_a_folder_that_says_nothing_of_its_encoder_is_the_encoder(config: str, tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    (tmp_path / "config.json").write_text(config)
    assert recorded(tmp_path) is None and base_model(str(tmp_path), Runtime()).name == tmp_path.name
