"""A split with logits has one row for each document, whatever the number of its windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from include.glue import TASKS
from tasks.encoder.batching import TokenTable
from tasks.scoring.scored import ScoredSplit
from tests.tasks.encoder.samples import stories, tokenizer, write_split


def test_a_document_of_several_windows_is_one_row(tmp_path: Path) -> None:
    words = tokenizer()
    words.enable_truncation(12, stride=2)
    texts, labels = stories(30)
    table = TokenTable.open(write_split(tmp_path / "dev", texts, labels, words=words, stride=2))
    assert len(table) > 2 * len(texts)
    logits = np.random.default_rng(1).standard_normal((len(texts), 2))
    found = ScoredSplit.of(TASKS["SST-2"], table, logits)
    assert found.rows.tolist() == list(range(len(texts)))
    assert found.labels.tolist() == labels
    assert found.sentences == texts
    assert found.metrics()["accuracy"] == np.mean(logits.argmax(1) == labels)
