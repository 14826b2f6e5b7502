"""The profile of the training rows: what of the training split it counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks.encoder.batching import TokenTable
from tasks.encoder.tokens import COPY
from tasks.scoring.drift import Profile
from tasks.stages.pipeline.package.stage import training_profile
from tests.tasks.encoder.samples import stories, tokenizer, write_split
from tests.tasks.stages.pipeline.package.packages import ASPECTS, MOVIES, PAIRS, STSB


def test_a_long_text_counts_once_and_a_copy_does_not(tmp_path: Path) -> None:
    words = tokenizer()
    words.enable_truncation(12, stride=3)
    texts, labels = stories(30)
    train = TokenTable.open(write_split(tmp_path / "train", texts, labels, words=words, stride=3))
    assert len(train) > 3 * len(train.documents)
    train.rows = np.where(train.rows < 20, train.rows, train.rows - 20 + COPY)
    names = [("negative", "positive")[label] for label in labels]
    assert training_profile(MOVIES.task, train) == Profile.of("classification", texts[:20], names[:20])


def test_labels_are_named_as_the_model_names_them(tmp_path: Path) -> None:
    texts = PAIRS[:4]
    sets = TokenTable.open(write_split(tmp_path / "sets", texts, [(1, 0), (1, 1), (0, 0), (1, 0)]))
    assert training_profile(ASPECTS.task, sets).shares == {"acting": 0.75, "plot": 0.25}
    scores = TokenTable.open(write_split(tmp_path / "scores", texts, [0.1, 5.0, 2.5, 0.1]))
    assert training_profile(STSB.task, scores) == Profile.of("regression", texts, [0.1, 5.0, 2.5, 0.1])
