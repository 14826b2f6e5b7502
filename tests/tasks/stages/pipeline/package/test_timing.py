"""The batches in which the forms are timed for the service."""

from __future__ import annotations

import numpy as np
import pytest

from include.fields.labeling import Serving
from tasks.stages.pipeline.package.timing import in_service
from tests.tasks.encoder.samples import tokenizer


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("clients", [1, 32])
def test_every_text_is_computed_once_and_no_client_has_two_at_a_time(clients: int, threads: int) -> None:
    sizes = np.random.default_rng(0).integers(1, 60, 100)
    inputs = [tokenizer().encode(" ".join(["good"] * size)) for size in sizes]
    made = in_service(inputs, clients, threads)
    assert sorted(map(id, (each for batch in made for each in batch))) == sorted(map(id, inputs))
    assert max(map(len, made)) <= clients
    for batch in made:
        assert len(batch) * max(map(len, batch)) <= Serving().batch_tokens
    if clients > threads:
        assert len(made) < len(inputs)
    else:
        assert [len(batch) for batch in made] == [1] * len(inputs)
