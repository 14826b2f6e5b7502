"""Ten minutes of load at half of the capacity while the champion changes: no request fails, memory does not grow."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks.serving.http_load import Generator, Target
from tests.tasks.serving.conftest import Start
from tests.tasks.serving.versions import add, await_version, promote
from tests.tasks.stages.pipeline.package.packages import SENTENCES, packaged

SECONDS = 600.0
PAUSE = 2  # seconds between two swaps
CLIENTS = 16
#: The share by which the memory of the last third may exceed that of the middle one.
GROWTH = 0.05

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("database"), pytest.mark.timeout(SECONDS + 600)]


@pytest.fixture
def generator() -> Iterator[Generator]:
    with Generator() as generator:
        yield generator


def test_champions_change_under_load_for_long(tmp_path: Path, start: Start, generator: Generator) -> None:
    made = packaged(tmp_path / "made")
    versions = [add(tmp_path, made, f"{name:-<16}") for name in ("first", "second")]
    promote(tmp_path, versions[0])
    process = start("serving.poll=0.5")
    await_version(process.client, "1")
    bodies = [json.dumps({"sentences": SENTENCES[: 1 + number]}).encode() for number in range(len(SENTENCES))]
    target = Target.of(int(process.client.address.rpartition(":")[2]), "/query", bodies)
    generator.closed(target, CLIENTS, 3)  # the first requests take longer
    capacity = len(generator.closed(target, CLIENTS, 5)) / 5

    service, memory = psutil.Process(process.process.pid), list[int]()
    sending, end = generator.start(target, capacity / 2, SECONDS), time.monotonic() + SECONDS
    swaps = 0
    while time.monotonic() < end - PAUSE:
        swaps += 1
        promote(tmp_path, versions[swaps % 2])
        await_version(process.client, versions[swaps % 2].number)
        time.sleep(PAUSE)
        memory.append(service.memory_info().rss)
    replies = sending.result()

    assert Counter(reply.status for reply in replies) == {200: len(replies)}
    answered = Counter(json.loads(reply.body)["model"]["version"] for reply in replies)
    assert set(answered) == {"1", "2"}
    third = len(memory) // 3
    before, after = np.median(memory[third : 2 * third]), np.median(memory[-third:])
    print(f"{len(replies):,} requests, {swaps} swaps, {before / 1e6:.0f} MB, and {after / 1e6:.0f} MB at the end")
    assert after < (1 + GROWTH) * before, memory
    assert process.stop() == 0
