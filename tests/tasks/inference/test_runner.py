"""The runner: the logits of texts, in their order, whatever windows, batches and shapes they are computed in."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from include.fields.results import Prediction
from include.stages import BadInput
from tasks.encoder.batching import Array
from tasks.encoder.loading import copy_tokenizer, load_pretrained, load_trained, read_head
from tasks.encoder.spec import HeadSpec
from tasks.inference import runner as module
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TorchBackend
from tests.tasks.encoder.samples import reviews, stories, tiny_encoder, tokenizer

SPEC = HeadSpec("classification", 2, pooling="mean", max_length=40, label_names=("negative", "positive"))
TEXTS: list[tuple[str, ...]] = list(reviews(100)[0])
BATCHES: dict[str, dict[str, Any]] = {
    "tokens": {"batching": "tokens", "batch_tokens": 512},
    "tiers": {"batching": "tiers"},
    "static": {"batching": "static"},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as the stage train writes it, whose logits differ from row to row."""
    folder = tmp_path_factory.mktemp("model")
    encoder = tiny_encoder(tmp_path_factory.mktemp("encoder"), type_vocab_size=2)
    classifier = load_pretrained(encoder, SPEC)
    torch.nn.init.normal_(classifier.output_layer.weight, std=1.0)
    classifier.save(folder)
    copy_tokenizer(encoder, folder, classifier, SPEC.max_length)
    return folder


@pytest.fixture(scope="module")
def expected(model: Path) -> Array:
    return alone(model, TEXTS)


class Recorded:
    """A backend that remembers the shapes of its batches."""

    def __init__(self, model: Path) -> None:
        self.shapes, self._torch = list[tuple[int, int]](), TorchBackend(load_trained(model), threads=1)

    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        self.shapes.append(input_ids.shape)
        return self._torch.logits(input_ids, attention_mask, token_type_ids)


@torch.inference_mode()
def alone(model: Path, texts: list[tuple[str, ...]]) -> Array:
    """The logits of texts that were computed one by one."""
    classifier, words, rows = load_trained(model), tokenizer(), []
    words.enable_truncation(SPEC.max_length, strategy="longest_first")
    for text in texts:
        encoding = words.encode(text[0], text[1] if len(text) == 2 else None)
        ids, segments = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
        rows.append(classifier(ids, torch.ones_like(ids), segments).numpy())
    return np.concatenate(rows)


@pytest.mark.parametrize("kind", BATCHES)
def test_logits_are_those_of_each_row_alone_in_the_order_of_the_texts(
    model: Path, expected: Array, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_AHEAD", 40)
    runner = Runner(model, Recorded(model), Prediction(**BATCHES[kind]))
    windows = list(runner.logits(iter(TEXTS)))
    assert [len(window) for window in windows] == [40, 40, 20]
    np.testing.assert_allclose(np.concatenate(windows), expected, atol=1e-5)


def test_both_texts_of_a_pair_count_and_long_ones_are_truncated(model: Path) -> None:
    both = zip(reviews(20, seed=1)[0], reviews(20, seed=2)[0], strict=True)
    pairs: list[tuple[str, ...]] = [(first, f"{second} {second} {second}") for (first,), (second,) in both]
    [logits] = Runner(model, TorchBackend(load_trained(model), threads=1)).logits(pairs)
    np.testing.assert_allclose(logits, alone(model, pairs), atol=1e-5)
    [swapped] = Runner(model, TorchBackend(load_trained(model), threads=1)).logits([pair[::-1] for pair in pairs])
    assert np.abs(swapped - logits).max() > 1e-3


def test_no_row_is_computed_twice_and_nothing_is_padded_without_need(model: Path) -> None:
    backend, texts = Recorded(model), reviews(700)[0]
    runner = Runner(model, backend, Prediction(batching="tokens", batch_tokens=1024))
    list(runner.logits(texts))
    longest = max(len(text.split()) for (text,) in texts) + 2
    assert sum(rows for rows, _ in backend.shapes) == 700
    assert backend.shapes[0] == (1024 // (-(-longest // 8) * 8) // 8 * 8, longest)


def test_texts_are_read_a_window_at_a_time(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_AHEAD", 10)
    texts = iter(reviews(25)[0])
    next(Runner(model, TorchBackend(load_trained(model), threads=1)).logits(texts))
    assert len(list(texts)) == 15


STRIDE = 6


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that divides long texts into windows of 24 tokens."""
    folder = tmp_path_factory.mktemp("windowed")
    encoder = tiny_encoder(tmp_path_factory.mktemp("encoder"), type_vocab_size=2)
    classifier = load_pretrained(encoder, replace(SPEC, max_length=24, stride=STRIDE))
    torch.nn.init.normal_(classifier.output_layer.weight, std=1.0)
    classifier.save(folder)
    copy_tokenizer(encoder, folder, classifier, 24)
    return folder


@torch.inference_mode()
def means(model: Path, texts: list[tuple[str]]) -> Array:
    """The means of the logits of windows that were cut by hand and computed one by one."""
    classifier, words, room = load_trained(model), tokenizer(), 24 - 2
    rows = []
    for (text,) in texts:
        [first, *inner, last] = words.encode(text).ids
        starts = [0]
        while starts[-1] + room < len(inner):
            starts.append(starts[-1] + room - STRIDE)
        windows = [torch.tensor([[first, *inner[start : start + room], last]]) for start in starts]
        rows.append(torch.cat([classifier(ids, torch.ones_like(ids)) for ids in windows]).mean(0).numpy())
    return np.stack(rows)


@pytest.mark.parametrize("window", [8, 40, 8192])
def test_the_logits_of_a_long_text_are_the_means_of_its_windows(
    windowed: Path, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_AHEAD", window)
    texts = stories(50)[0]
    parts = list(Runner(windowed, TorchBackend(load_trained(windowed), threads=1)).logits(iter(texts)))
    assert sum(map(len, parts)) == 50 and (len(parts) > 1) == (window < 8192)
    np.testing.assert_allclose(np.concatenate(parts), means(windowed, texts), atol=1e-5)


def test_windows_bound_what_is_read_ahead(windowed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_AHEAD", 40)
    monkeypatch.setattr(module, "_READ", 4)
    backend, texts = Recorded(windowed), stories(60)[0]
    rest = iter(texts)
    assert len(next(Runner(windowed, backend).logits(rest))) + len(list(rest)) == 60
    longest = max(math.ceil((len(text.split()) - STRIDE) / (22 - STRIDE)) for (text,) in texts)
    assert 40 <= sum(rows for rows, _ in backend.shapes) < 40 + 4 * longest


def test_a_model_knows_how_it_reads_long_texts(windowed: Path, model: Path) -> None:
    assert (read_head(windowed).stride, load_trained(windowed).spec.stride) == (STRIDE, STRIDE)
    assert read_head(model).stride is None


def test_no_texts_have_no_logits(model: Path) -> None:
    assert list(Runner(model, TorchBackend(load_trained(model), threads=1)).logits([])) == []


def test_the_head_is_known_without_the_weights(model: Path, tmp_path: Path) -> None:
    head = Runner(model, TorchBackend(load_trained(model), threads=1)).head
    assert read_head(model) == load_trained(model).spec == head
    assert (read_head(model).max_length, read_head(model).label_names) == (40, ("negative", "positive"))
    with pytest.raises(BadInput, match=r"config\.json is missing"):
        read_head(tmp_path)
    encoder = tiny_encoder(tmp_path / "encoder")
    with pytest.raises(BadInput, match="does not describe a trained head"):
        read_head(encoder)
