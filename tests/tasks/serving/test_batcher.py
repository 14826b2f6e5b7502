"""Batches of a tiny model, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from include.fields.labeling import Serving
from tasks.inference.packaged_model import PackagedModel
from tasks.serving.batcher import SHORT, Batcher
from tasks.serving.metrics import Metrics
from tasks.serving.refusal import Overloaded
from tests.tasks.stages.pipeline.package.packages import SENTENCES

#: A form whose logits do not depend on the shape of a batch, as those of bf16 and int8 do a little.
EXACT = "onnxruntime-fp32"


def made(package: Path, thread: ThreadPoolExecutor, queue_tokens: int = 65536) -> Batcher:
    serving = Serving(batch_tokens=512, queue_tokens=queue_tokens)
    return Batcher(PackagedModel(package, EXACT), thread, thread, 1, serving, Metrics())


def answered(package: Path, requests: list[list[str]], seconds: float) -> list[Any]:
    """Send texts, and then all requests at once with a deadline; return the logits or the refusals of the latter."""

    async def ask() -> list[Any]:
        with ThreadPoolExecutor(1) as thread:
            batcher = made(package, thread)
            await batcher.logits([SENTENCES])  # from now on, it knows how fast it is
            deadline = asyncio.get_running_loop().time() + seconds
            asked = [batcher.logits([texts], deadline=deadline) for texts in requests]
            found = await asyncio.gather(*asked, return_exceptions=True)
            await batcher.drain()
        return found

    return asyncio.run(ask())


def test_short_and_long_requests_get_the_logits_of_the_package(package: Path) -> None:
    requests = [SENTENCES[:3], SENTENCES * 3, SENTENCES[3:4]]
    assert sum(map(len, requests[1])) > SHORT > sum(map(len, requests[0]))  # tokenized in a thread, and at once
    model = PackagedModel(package, EXACT)
    for texts, found in zip(requests, answered(package, requests, seconds=10), strict=True):
        np.testing.assert_allclose(found, model.logits([texts]), atol=1e-4)


def test_a_request_that_would_wait_too_long_is_refused_at_once(package: Path) -> None:
    first, *others = answered(package, [[text] for text in SENTENCES[:3]], seconds=0)
    assert first.shape == (1, 2)  # nothing waited before it
    for refused in others:
        assert isinstance(refused, Overloaded) and int(refused.headers["Retry-After"]) >= 1


def test_a_full_queue_is_known_without_the_texts_of_a_request(package: Path) -> None:
    async def ask() -> None:
        with ThreadPoolExecutor(1) as thread:
            batcher = made(package, thread)
            await batcher.logits([SENTENCES])  # from now on, it knows how fast it is
            now = asyncio.get_running_loop().time()
            batcher.refuse_if_full(1, "", now)
            waiting = asyncio.create_task(batcher.logits([SENTENCES[:1]]))
            await asyncio.sleep(0)
            with pytest.raises(Overloaded):
                batcher.refuse_if_full(1, "", now)
            await waiting
            await batcher.drain()

    asyncio.run(ask())


def test_a_batcher_that_is_done_leaves_its_model_at_once(package: Path) -> None:
    async def use() -> weakref.ref[PackagedModel]:
        with ThreadPoolExecutor(1) as thread:
            batcher = made(package, thread)
            await batcher.logits([SENTENCES[:1]])
            await batcher.drain()
            await asyncio.sleep(0)
            return weakref.ref(batcher.model)

    gc.disable()  # the service is large and collects garbage seldom, without knowing how large a model is
    try:
        assert asyncio.run(use())() is None
    finally:
        gc.enable()


def test_of_a_burst_only_what_can_be_answered_in_time_is_admitted(package: Path) -> None:
    async def ask() -> list[Any]:
        with ThreadPoolExecutor(1) as thread:
            batcher = made(package, thread, 2**20)
            await asyncio.gather(*(batcher.logits([SENTENCES]) for _ in range(8)))  # now it knows how fast it is
            deadline = asyncio.get_running_loop().time() + 2
            requests = (batcher.logits([SENTENCES * 25], str(number), deadline) for number in range(200))
            found = await asyncio.gather(*requests, return_exceptions=True)
            late = asyncio.get_running_loop().time() - deadline
            await batcher.drain()
            assert late < 4, "what was admitted has taken three times as long as its deadline allows"
        return found

    found = asyncio.run(ask())
    refused = [each for each in found if isinstance(each, Overloaded)]
    assert 0 < len(refused) < 200 == len(refused) + sum(isinstance(each, np.ndarray) for each in found)


@pytest.mark.parametrize("kind", ["words", "no blanks", "one word", "blanks"])
def test_a_long_text_has_the_tokens_of_its_whole(package: Path, kind: str) -> None:
    long = {
        "words": "good movie , a bad one . " * 5_000,
        "no blanks": "good!?" * 20_000,
        "one word": "x" * 100_000,
        "blanks": "good" + " " * 100_000 + "bad",
    }[kind]
    model = PackagedModel(package, EXACT)
    whole = Tokenizer.from_file(str(package / "model/tokenizer.json"))
    whole.no_padding()
    whole.enable_truncation(model.max_length)
    [encoding], _ = model.encode([[long]])
    assert encoding.ids == whole.encode(long).ids


def test_after_an_error_in_the_queue_the_next_request_is_answered(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        with ThreadPoolExecutor(1) as thread:
            batcher = made(package, thread)
            with monkeypatch.context() as patch:
                patch.setattr(batcher._waiting, "take", [].pop)  # raises, as a fault in the books would
                with pytest.raises(IndexError):
                    await asyncio.wait_for(batcher.logits([SENTENCES[:1]]), 3)
            assert (await asyncio.wait_for(batcher.logits([SENTENCES[:1]]), 3)).shape == (1, 2)
            await batcher.drain()

    asyncio.run(ask())
