"""A saved model loads in plain transformers, for every family, and gives the same logits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from tasks.encoder import tokens
from tasks.encoder.loading import copy_tokenizer, load_pretrained, load_trained
from tasks.encoder.models import Classifier
from tasks.encoder.spec import HeadSpec
from tests.tasks.encoder.families import FAMILIES, family
from tests.tasks.encoder.samples import reviews

LENGTH = 12  # tokens, fewer than the longest of the sentences
CLASSES = HeadSpec("classification", 3, max_length=LENGTH, label_names=("bad", "so so", "good"))
SCORES = HeadSpec("regression", 1, max_length=LENGTH, score_range=(1.0, 5.0))
SENTENCES = [text for (text,) in reviews(8, seed=1)[0]]
PAIRS = [SENTENCES, SENTENCES[::-1]]


def saved(folder: Path, kind: str, spec: HeadSpec) -> Classifier:
    """Save a model of the family in a folder, with a head whose outputs differ clearly from row to row."""
    encoder = family(folder.with_name("encoder"), kind)
    model = load_pretrained(encoder, spec).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save(folder)
    copy_tokenizer(encoder, folder, model, LENGTH)
    return model


@torch.no_grad()
def logits_of(model: Classifier, folder: Path, columns: list[list[str]]) -> torch.Tensor:
    """The model's own logits, row by row."""
    words = tokens.open_tokenizer(folder / "tokenizer.json", LENGTH)
    rows = []
    for encoding in tokens.encode(words, columns):
        ids, segments = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
        rows.append(model(ids, torch.ones_like(ids), segments)[0])
    return torch.stack(rows)


@torch.no_grad()
def plain_logits(model: Any, folder: Path, columns: list[list[str]]) -> torch.Tensor:
    """The logits of transformers' model and tokenizer, for all rows in one padded batch."""
    words = AutoTokenizer.from_pretrained(folder)
    logits: torch.Tensor = model(**words(*columns, padding=True, truncation=True, return_tensors="pt")).logits
    return logits


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("columns", [[SENTENCES], PAIRS], ids=["sentences", "pairs"])
@pytest.mark.parametrize("spec", [CLASSES, SCORES], ids=["classes", "scores"])
def test_plain_transformers_gives_the_same_logits(
    tmp_path: Path, kind: str, columns: list[list[str]], spec: HeadSpec
) -> None:
    folder = tmp_path / "model"
    expected = logits_of(saved(folder, kind, spec), folder, columns)
    assert expected.std(0).min() > 2e-3
    torch.testing.assert_close(logits_of(load_trained(folder), folder, columns), expected, rtol=0, atol=1e-5)
    plain = AutoModelForSequenceClassification.from_pretrained(folder)
    torch.testing.assert_close(plain_logits(plain, folder, columns), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_pipeline_names_the_labels(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "model"
    expected = logits_of(saved(folder, kind, CLASSES), folder, [SENTENCES]).softmax(-1)
    found = pipeline("text-classification", model=str(folder))(SENTENCES, truncation=True)
    assert [row["label"] for row in found] == [CLASSES.label_names[number] for number in expected.argmax(-1)]
    assert [row["score"] for row in found] == pytest.approx(expected.amax(-1).tolist(), abs=1e-5)


def test_a_pipeline_predicts_scores_in_their_range(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    expected = logits_of(saved(folder, "bert", SCORES), folder, [SENTENCES])[:, 0]
    found = pipeline("text-classification", model=str(folder))(SENTENCES, truncation=True)
    assert [row["label"] for row in found] == ["score"] * len(SENTENCES)
    np.testing.assert_allclose([row["score"] for row in found], expected, atol=1e-5)


def test_the_configuration_says_what_the_head_predicts(tmp_path: Path) -> None:
    saved(tmp_path / "classes", "bert", CLASSES)
    config = AutoModelForSequenceClassification.from_pretrained(tmp_path / "classes").config
    assert config.problem_type == "single_label_classification"
    assert config.id2label == {0: "bad", 1: "so so", 2: "good"}
    assert config.label2id == {"bad": 0, "so so": 1, "good": 2}
    saved(tmp_path / "scores", "bert", SCORES)
    config = AutoModelForSequenceClassification.from_pretrained(tmp_path / "scores").config
    assert (config.problem_type, config.num_labels, config.score_range) == ("regression", 1, [1.0, 5.0])


#: Load the model in a folder without any module of this repository, and print the logits of a text.
PLAIN = """
import sys
from transformers import AutoModelForSequenceClassification, AutoTokenizer
folder, text, trust = sys.argv[1:]
words = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=trust == "trust" or None)
print("logits", *model(**words(text, truncation=True, return_tensors="pt")).logits[0].tolist())
"""


def test_a_head_that_transformers_lacks_is_refused_or_right(tmp_path: Path) -> None:
    folder, environment = tmp_path / "model", {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")}
    spec = HeadSpec("regression", 1, "mean", max_length=LENGTH, score_range=(0.0, 5.0))
    expected = logits_of(saved(folder, "bert", spec), folder, [SENTENCES[:1]])
    assert load_trained(folder).spec == spec

    def plain(trust: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PLAIN, str(folder), SENTENCES[0], trust]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    refused = plain("")
    assert refused.returncode != 0 and "pass the argument `trust_remote_code=True`" in refused.stderr
    trusted = plain("trust")
    logits = trusted.stdout.partition("logits")[2].split()
    assert [float(value) for value in logits] == pytest.approx(expected[0].tolist(), abs=1e-5)
