"""Terms that a tokenizer splits become tokens, for every family, and everything else stays as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch import nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel, pipeline

from include.named_experiments import load
from include.runs import Run
from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.encoder.lexicon import BUNDLED, add_terms, lexicon_file, read_terms, write_encoder, write_tokenizer
from tasks.encoder.loading import copy_tokenizer, load_encoder, load_pretrained, load_trained
from tasks.encoder.models import predict_logits
from tasks.encoder.spec import HeadSpec
from tasks.encoder.tokens import open_tokenizer
from tasks.stages.pipeline.preprocess.stage import plan
from tests.tasks.all_stages import run_all_stages
from tests.tasks.encoder.families import FAMILIES, family
from tests.tasks.encoder.samples import reviews

LENGTH = 24
TERMS = ["goodbad", "word1 good", "goodbad word2"]
CLASSES = HeadSpec("classification", 2, max_length=LENGTH, label_names=("bad", "good"))


@pytest.fixture
def terms(tmp_path: Path) -> str:
    file = tmp_path / "terms.txt"
    file.write_text("\n".join(["", *TERMS, *TERMS, ""]))
    return str(file)


@pytest.fixture(params=FAMILIES)
def encoder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return family(tmp_path / "encoder", request.param)


def embeddings(encoder: PreTrainedModel) -> torch.Tensor:
    return cast(nn.Embedding, encoder.get_input_embeddings()).weight


def ids_of(folder: Path, text: str) -> list[int]:
    return list(open_tokenizer(folder / "tokenizer.json", LENGTH).encode(text).ids)


@torch.no_grad()
def test_every_family_reads_the_terms_as_tokens_and_other_texts_as_before(
    encoder: Path, terms: str, tmp_path: Path
) -> None:
    (tmp_path / "grown").mkdir()
    grown = write_encoder(encoder, terms, tmp_path / "grown")
    assert grown == tmp_path / "grown" and write_encoder(grown, terms, tmp_path / "again") == grown
    before, after = load_encoder(encoder, LENGTH), load_encoder(grown, LENGTH)
    size, words = before.config.vocab_size, embeddings(after)
    assert len(words) == after.config.vocab_size > size
    for text in [text for (text,) in reviews(5, seed=4)[0]]:
        ids = ids_of(grown, text)
        assert ids == ids_of(encoder, text)
        assert torch.equal(after(torch.tensor([ids]))[0], before(torch.tensor([ids]))[0])
    inside = ids_of(grown, "word3 goodbad, word1 good goodbad word2 goodbadly")
    new = [number for number in inside if number >= size]
    assert len(set(new)) == len(new) == 3
    for term, number in zip(TERMS, new, strict=True):
        pieces = Tokenizer.from_file(str(encoder / "tokenizer.json")).encode(f" {term}", add_special_tokens=False).ids
        assert len(pieces) > 1 or pieces == [ids_of(encoder, "\u2603")[1]]  # unknown
        torch.testing.assert_close(words[number], embeddings(before)[pieces].mean(0))
    capital = ids_of(grown, "Goodbad")
    assert len(capital) == 3 and capital[1] >= size


@torch.no_grad()
def test_plain_transformers_reads_the_terms_of_a_saved_model(encoder: Path, terms: str, tmp_path: Path) -> None:
    (tmp_path / "grown").mkdir()
    grown = write_encoder(encoder, terms, tmp_path / "grown")
    model = load_pretrained(grown, CLASSES).eval()
    model.save(tmp_path / "model")
    copy_tokenizer(grown, tmp_path / "model", model, LENGTH)
    text = "word3 goodbad word1"
    ids = torch.tensor([ids_of(grown, text)])
    logits = model(ids, torch.ones_like(ids), torch.zeros_like(ids))
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(plain(ids).logits, logits, rtol=0, atol=1e-6)
    (found,) = pipeline("text-classification", model=str(tmp_path / "model"))(text)
    assert found["score"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-6)


@torch.no_grad()
def test_a_trained_model_gets_terms_and_keeps_its_head(terms: str, tmp_path: Path) -> None:
    spec = replace(CLASSES, pooling="mean")
    encoder = family(tmp_path / "encoder", "bert")
    model = load_pretrained(encoder, spec).eval()
    model.save(tmp_path / "model")
    copy_tokenizer(encoder, tmp_path / "model", model, LENGTH)
    (tmp_path / "grown").mkdir()
    grown = load_pretrained(write_encoder(tmp_path / "model", terms, tmp_path / "grown"), spec).eval()
    assert grown.encoder.config.vocab_size > model.encoder.config.vocab_size
    ids = torch.tensor([ids_of(encoder, "word1 bad word3")])
    assert torch.equal(grown(ids, torch.ones_like(ids)), model(ids, torch.ones_like(ids)))


def test_a_tokenizer_that_finds_no_added_words_is_refused(tmp_path: Path) -> None:
    words = Tokenizer(models.BPE({piece: number for number, piece in enumerate("▁abdgno,")}, [], unk_token="▁"))
    words.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    with pytest.raises(ValueError, match=r"^goodbad$"):
        add_terms(words, ["goodbad"])
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "terms").write_text("goodbad")
    with pytest.raises(
        BadInput, match=r"cannot keep 'goodbad' of .*terms whole: remove the term, leave model\.lexicon"
    ):
        write_tokenizer(tmp_path, str(tmp_path / "terms"), tmp_path)


def test_a_tokenizer_without_case_needs_one_token_for_both_forms() -> None:
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "good": 1}, unk_token="[UNK]"))
    words.normalizer, words.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    assert add_terms(words, ["Good", "goodbad", "GoodBad"]) == {2: [0]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no terms: write one per line"),
        (b"film\n\xff", "is not encoded in UTF-8"),
        (b"film\n" + b"x" * 101, "line 2: a term has at most 100 characters"),
    ],
)
def test_a_file_without_usable_terms_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "terms").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_terms(tmp_path / "terms")


def test_a_lexicon_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"model\.lexicon 'films' is neither bundled \(film\) nor a file: begin the path"
    ):
        lexicon_file("films")
    with pytest.raises(BadInput, match=r"model\.lexicon 'data/film' is neither bundled"):
        lexicon_file("data/film")
    with pytest.raises(BadInput, match=r"/nowhere is missing: put the terms there, one per line"):
        lexicon_file("/nowhere")


def test_the_bundled_terms_are_sorted_and_appear_once() -> None:
    lines = (BUNDLED / "film.txt").read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines)) == read_terms(lexicon_file("film"))


def test_the_key_of_the_tokens_follows_the_terms(tmp_path: Path, terms: str) -> None:
    run = Run(tmp_path / "runs" / "one")
    without, bundled, own = (plan(load("movies", [f"model.lexicon={name}"]), run) for name in ("", "film", terms))
    Path(terms).write_text("another")
    other = plan(load("movies", [f"model.lexicon={terms}"]), run)
    assert len({without, bundled, own, other}) == 4 and own.startswith(without)


@pytest.mark.parametrize("pretrained", [True, False])
def test_the_stages_read_the_terms_as_tokens(tmp_path: Path, terms: str, pretrained: bool) -> None:
    (tmp_path / "text").write_text("".join(f"{text} {TERMS[0]}\n" for (text,) in reviews(60, seed=5)[0]))
    splits = {
        name: [
            {"sentence": f"{text} {TERMS[label]}", "label": ("bad", "good")[label]}
            for (text,), label in zip(*reviews(rows, seed), strict=True)
        ]
        for seed, (name, rows) in enumerate({"train": 64, "dev": 32}.items())
    }
    values = {
        "data": {"task": "classification", "labels": ["bad", "good"]},
        "model": {"name": str(family(tmp_path / "encoder", "bert")), "lexicon": terms},
        "preprocessing": {"max_length": LENGTH},
        "pretraining": {"text": str(tmp_path / "text") if pretrained else "", "batch_size": 8},
        "training": {"epochs": 1},
        "gate": {"accuracy": 0},
    }
    run = run_all_stages(tmp_path, splits, values, ("validate", "preprocess", "pretrain", "train"))
    folders = {name: run.artifact(name).path for name in ("preprocess", "pretrain", "train")}
    if pretrained:
        assert ids_of(folders["pretrain"] / "model", TERMS[0]) == ids_of(folders["train"] / "model", TERMS[0])
    (number,) = ids_of(folders["train"] / "model", TERMS[0])[1:-1]
    dev = TokenTable.open(folders["preprocess"] / "dev")
    assert [number in row for row in dev.batch(np.arange(len(dev))).input_ids] == [
        row["sentence"].endswith(TERMS[0]) for row in splits["dev"]
    ]
    predict_logits(load_trained(folders["train"] / "model"), dev)
    assert not list(tmp_path.rglob("lexicon-*"))
