"""The papers' tiers, and batching by tokens."""

from __future__ import annotations

import numpy as np
import pytest

from include.fields.results import Prediction
from tasks.inference.runner import batches, tier


@pytest.mark.parametrize(
    ("mean_length", "rows"), [(3, 128), (32, 128), (32.1, 64), (64, 64), (65, 32), (128, 32), (128.5, 16), (500, 16)]
)
def test_tiers(mean_length: float, rows: int) -> None:
    assert tier(mean_length) == rows


def test_a_partition_is_cut_by_its_average_length() -> None:
    lengths = np.array([10] * 150 + [120] * 150)  # 65 on average
    cut = batches(lengths, Prediction(batching="tiers"))
    assert [len(batch) for batch in cut] == [32] * 9 + [12]
    assert sorted(np.concatenate(cut)) == list(range(300))


def test_a_partition_is_cut_by_tokens() -> None:
    cut = batches(np.full(100, 64), Prediction(batching="tokens", batch_tokens=1024))
    assert [len(batch) for batch in cut] == [16] * 6 + [4]
