"""Explanations: which words of a text are left out, and what their contributions say of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.explanations import faithfulness
from tasks.encoder.batching import Array
from tasks.encoder.loading import copy_tokenizer, load_pretrained
from tasks.encoder.spec import HeadSpec
from tasks.inference.explanation import PARTS, Part, explain, explanations, parts_of, without
from tasks.inference.labeler import values
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TorchBackend
from tests.tasks.encoder.samples import reviews, tiny_encoder, tokenizer

CLASSES = HeadSpec("classification", 2, pooling="mean", max_length=32, label_names=("negative", "positive"))
WINDOWS = replace(CLASSES, stride=4)


def words(texts: Sequence[str], spec: HeadSpec = CLASSES, most: int = PARTS) -> list[str]:
    return [texts[part.text][part.start : part.end] for part in parts_of(texts, spec, most)]


def left(text: str) -> list[str]:
    return [found for (found,) in without((text,), parts_of((text,), CLASSES))]


def test_words_are_those_of_the_text_as_it_was_written() -> None:
    assert words(("It's  a\tGREAT,\nodd film!",)) == ["It's", "a", "GREAT,", "odd", "film!"]
    assert words(("\u5f88\u597d\u7684 film\u3002",)) == ["\u5f88", "\u597d", "\u7684", "film", "\u3002"]
    assert words(("\u0939\u093f\u0928\u094d\u0926\u0940 \u200b",)) == ["\u0939\u093f\u0928\u094d\u0926\u0940"]
    assert words(("one two", "three")) == ["one", "two", "three"]
    assert [part.text for part in parts_of(("one two", "three"), CLASSES)] == [0, 0, 1]


def test_what_cleaning_removes_is_no_word() -> None:
    spec = replace(CLASSES, cleaning=("html", "punctuation"))
    assert words(('<a href="x y">End</a>.<br />Start - now!',), spec) == ["End", "Start", "now!"]
    assert words(("...", "!"), spec) == []


def test_a_word_is_left_out_with_the_space_that_follows_it() -> None:
    assert left("a fine film") == ["fine film", "a film", "a fine"]
    assert left("\u597d\u7684 x") == ["\u7684 x", "\u597d x", "\u597d\u7684"]
    assert left("alone") == [""]


def test_long_texts_are_left_out_in_parts_of_several_words() -> None:
    text = " ".join(map(str, range(1000)))
    assert len(words((text,))) == CLASSES.max_length  # what is truncated is not read
    assert words((text,), WINDOWS, most=3) == [
        " ".join(map(str, range(first, min(first + 334, 1000)))) for first in (0, 334, 668)
    ]
    assert len(words((text,), WINDOWS)) <= PARTS
    assert words((text, "a b"), WINDOWS, most=4)[-1] == "a b"


def test_contributions_are_to_the_predicted_label_each_predicted_label_or_the_score() -> None:
    parts = [Part(0, 0, 1), Part(1, 0, 1)]
    whole, changed = np.array([0.2, 0.8]), np.array([[0.5, 0.5], [0.2, 0.8]])
    given = (("a", "b"), parts, whole, changed)
    assert explain(CLASSES, CLASSES.label_names, *given) == [
        {"word": "a", "text": 1, "contribution": 0.3},
        {"word": "b", "text": 2, "contribution": 0.0},
    ]
    sets = replace(CLASSES, kind="multilabel", thresholds=(0.1, 0.9))
    assert explain(sets, ("x", "y"), *given)[0]["contribution"] == {"x": -0.3}
    assert explain(replace(sets, thresholds=()), ("x", "y"), *given)[0]["contribution"] == {"y": 0.3}
    score = replace(CLASSES, kind="regression", outputs=1)
    [only] = explain(score, (), ("a",), parts[:1], np.array([4.0]), np.array([[1.5]]))
    assert only == {"word": "a", "contribution": 2.5}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A tiny model that has learned which word decides about the label of a review."""
    encoder, folder = (
        tiny_encoder(tmp_path_factory.mktemp("encoder"), num_hidden_layers=1),
        tmp_path_factory.mktemp("model"),
    )
    model, (texts, labels) = load_pretrained(encoder, CLASSES), reviews(800, seed=1)
    encodings, optimizer = (
        tokenizer().encode_batch([text for (text,) in texts]),
        torch.optim.AdamW(model.parameters(), 1e-2),
    )
    for _ in range(3):
        for some in torch.randperm(800).view(-1, 32):
            rows = [torch.tensor(encodings[at].ids) for at in some]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            loss = torch.nn.functional.cross_entropy(model(ids, (ids > 0).long(), 0 * ids), torch.tensor(labels)[some])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    model.save(folder)
    copy_tokenizer(encoder, folder, model, CLASSES.max_length)
    return Runner(folder, TorchBackend(model, threads=1))


def test_explanations_are_faithful_to_the_model(runner: Runner) -> None:
    texts: list[tuple[str, ...]] = list(reviews(60, seed=2)[0])

    def answer(some: Iterable[Sequence[str]]) -> Iterator[Array]:
        return (values(runner.head, logits) for logits in runner.logits(some))

    answers = np.concatenate(list(answer(texts)))
    found = list(explanations(runner.head, runner.head.label_names, texts, answers, answer))
    assert [[part["word"] for part in row] for row in found] == [text.split() for (text,) in texts]
    contributions = [np.array([part["contribution"] for part in row]) for row in found]
    random = np.random.default_rng(0)
    chance = faithfulness(texts, [random.random(len(row)) for row in contributions], runner.head, answer)
    ours = faithfulness(texts, contributions, runner.head, answer)
    assert ours.comprehensiveness > chance.comprehensiveness + 0.2
    assert ours.sufficiency < chance.sufficiency - 0.2
