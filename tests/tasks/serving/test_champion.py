"""The champion of a real registry: seen when the alias moves, while clients ask."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from include.artifacts import MANIFEST, Artifact, ArtifactStore, sha256, write_json
from tasks.tracking.champions import Champions
from tasks.tracking.loading import PACKAGE, PACKAGE_SHA256
from tasks.tracking.registry import Version
from tasks.tracking.server import Server
from tests.tasks.serving.conftest import Client, Process, Reply
from tests.tasks.stages.package.packages import SENTENCES, packaged

MODEL = "spark-bert-movie-reviews"

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return packaged(tmp_path_factory.mktemp("made"))


def add(home: Path, made: Artifact, key: str, changed: dict[str, object] | None = None) -> Version:
    """Register a copy of a package, whose examples may be others."""
    store, registry = ArtifactStore(home), Champions(Server(home), MODEL)
    with store.writing("package", key) as folder:
        shutil.copytree(made.path, folder, dirs_exist_ok=True)
        (folder / MANIFEST).unlink()
        if changed is not None:
            write_json(folder / "examples.json", changed)
        package = store.commit(folder, replace(made.manifest, key=key))
    experiment = registry.client.create_experiment(f"of {key}", str(home / "mlflow/artifacts"))
    tags = {PACKAGE: key, PACKAGE_SHA256: sha256(package.path / MANIFEST)}
    return registry.add(registry.client.create_run(experiment).info.run_id, package.path, tags)


def promote(home: Path, version: Version) -> None:
    Champions(Server(home), MODEL).make_champion(version)


@contextmanager
def asking(client: Client) -> Iterator[list[Reply]]:
    """Ask all the time, and collect the replies."""
    replies: list[Reply] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            replies.append(client.post("/query", {"sentences": SENTENCES[: 1 + len(replies) % 9]}))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield replies
    stop.set()
    for thread in threads:
        thread.join()


def await_version(client: Client, number: str) -> None:
    """Wait until a version answers."""
    for _ in range(600):
        if client.send(f"/v2/models/{MODEL}/versions/{number}/ready").status == 200:
            return
        time.sleep(0.05)
    raise AssertionError(f"version {number} does not answer")


def test_a_new_champion_answers_and_no_request_is_lost(tmp_path: Path, made: Artifact) -> None:
    first, second = (add(tmp_path, made, f"{name:-<16}") for name in ("first", "second"))
    process = Process(tmp_path, "serving.poll=0.1", "serving.threads=1")
    process.said("has no champion yet")
    unready = process.client.post("/query", {"sentences": "good"})
    assert unready.status == process.client.send("/v2/health/ready").status == 503
    assert process.client.send("/v2/health/live").status == 200
    promote(tmp_path, first)
    await_version(process.client, "1")
    with asking(process.client) as replies:
        promote(tmp_path, second)
        await_version(process.client, "2")
        asked = len(replies)
        time.sleep(0.5)
    assert {reply.status for reply in replies} == {200}
    versions = [reply.value["model"]["version"] for reply in replies]
    assert set(versions) == {"1", "2"} and set(versions[asked + 6 :]) == {"2"}
    promote(tmp_path, first)  # as a rollback does
    await_version(process.client, "1")
    assert process.stop() == 0


def test_a_bad_champion_stays_out(tmp_path: Path, made: Artifact) -> None:
    examples = json.loads((made.path / "examples.json").read_text(encoding="utf-8"))
    examples["logits"] = [row[::-1] for row in examples["logits"]]
    good, wrong = add(tmp_path, made, "good------------"), add(tmp_path, made, "wrong-----------", examples)
    damaged, later = add(tmp_path, made, "damaged---------"), add(tmp_path, made, "later-----------")
    (tmp_path / "artifacts/package/damaged---------/model/config.json").write_text("{}")
    broken = add(tmp_path, made, "broken----------", {"texts": 3})
    promote(tmp_path, good)
    process = Process(tmp_path, "serving.poll=0.1", "serving.threads=1")
    await_version(process.client, "1")
    promote(tmp_path, wrong)
    process.said("version 2 of", "is not used: ", "the answer to example")
    promote(tmp_path, damaged)
    process.said("version 3 of", "is not used: ", "config.json")
    promote(tmp_path, broken)
    process.said("version 5 of", "is not used: ")
    assert process.client.post("/query", {"sentences": "good"}).value["model"]["version"] == "1"
    assert 'spark_bert_loads_total{outcome="refused"} 3.0' in process.client.send("/metrics").value
    promote(tmp_path, later)
    await_version(process.client, "4")
    assert process.stop() == 0
