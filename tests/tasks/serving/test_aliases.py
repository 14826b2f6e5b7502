"""The champion of a real registry: seen when the alias moves, while clients ask."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import tritonclient.http as triton

from include.artifacts import Artifact
from tasks.inference.packaged_model import PackagedModel
from tasks.scoring.risk import EVIDENCE
from tasks.tracking.champions import Champions
from tasks.tracking.server import Server
from tests.tasks.serving.conftest import Client, Process, Reply, Start
from tests.tasks.serving.versions import MODEL, add, await_version, promote
from tests.tasks.stages.pipeline.package.packages import SENTENCES, doubt, packaged

TENSORS = {"inputs": [{"name": "sentence", "shape": [1], "datatype": "BYTES", "data": ["good"]}]}

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return packaged(tmp_path_factory.mktemp("made"))


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


def test_a_new_champion_answers_and_no_request_is_lost(tmp_path: Path, made: Artifact, start: Start) -> None:
    first, second = (add(tmp_path, made, f"{name:-<16}") for name in ("first", "second"))
    process = start("serving.poll=0.1", "serving.threads=1")
    process.said("has no champion: promote a model")
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
    process.said("With 32 clients, version 2", "times as many texts per second as version 1")
    promote(tmp_path, first)  # as a rollback does
    await_version(process.client, "1")
    assert process.stop() == 0


def test_a_request_is_answered_by_the_version_that_it_began_with(tmp_path: Path, made: Artifact, start: Start) -> None:
    first, second = (add(tmp_path, made, f"{name:-<16}") for name in ("first", "second"))
    promote(tmp_path, first)
    process = start("serving.poll=0.1", "serving.threads=1", "serving.deadline=60")
    await_version(process.client, "1")
    address, body = urlsplit(process.client.address), json.dumps(TENSORS).encode()
    head = f"POST /v2/models/{MODEL}/versions/1/infer HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=60) as slow:
        slow.sendall(head.encode())
        time.sleep(0.2)
        promote(tmp_path, second)
        await_version(process.client, "2")
        slow.sendall(body)
        response = HTTPResponse(slow)
        response.begin()
        assert json.load(response)["model_version"] == "1"
    assert process.stop() == 0


def test_each_champion_abstains_where_its_own_dev_rows_say_so(tmp_path: Path, made: Artifact, start: Start) -> None:
    plain, sentences = PackagedModel(made.path), list(dict.fromkeys(SENTENCES))
    confidence = plain.probabilities(plain.logits([sentences])).max(axis=1)
    versions = []
    for name, least in (("careful", float(np.median(confidence))), ("old", None), ("sure", 0.5)):
        shutil.copytree(made.path, tmp_path / name)
        (tmp_path / name / EVIDENCE).unlink()
        if least is not None:
            doubt(tmp_path / name, least)
        versions.append(add(tmp_path, replace(made, path=tmp_path / name), f"{name:-<16}"))
    promote(tmp_path, versions[0])
    process = start("serving.poll=0.1", "serving.threads=1", "prediction.max_risk=0.05")
    await_version(process.client, "1")
    process.said("version 1: max_risk 0.05 is certified from confidence")
    results = process.client.post("/query", {"sentences": sentences}).value["results"]
    silent = [row["label"] is None for row in results]
    assert 0 < sum(silent) < len(silent) and list(results[0]) == ["label", "probabilities", "abstained"]
    for row in results:
        assert (row["label"] is None) == (row["abstained"] is not None)
        assert row["label"] in (None, max(row["probabilities"], key=row["probabilities"].get))
    client = triton.InferenceServerClient(urlsplit(process.client.address).netloc)
    tensor = triton.InferInput("sentence", [len(sentences)], "BYTES")
    tensor.set_data_from_numpy(np.array([sentence.encode() for sentence in sentences], object))
    for binary in (True, False):
        outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("label", "abstained")]
        found = client.infer(MODEL, [tensor], outputs=outputs)
        assert (found.as_numpy("label") == -1).tolist() == silent
        texts = found.as_numpy("abstained").tolist()
        reasons = [text.decode() if isinstance(text, bytes) else text for text in texts]
        assert reasons == [row["abstained"] or "" for row in results]
    counted = f'spark_bert_abstained_total{{version="1"}} {3.0 * sum(silent)}'
    assert counted in process.client.send("/metrics").value
    promote(tmp_path, versions[1])
    process.said("version 2 of", "is not used: prediction.max_risk needs", "package the model again")
    promote(tmp_path, versions[2])
    await_version(process.client, "3")
    results = process.client.post("/query", {"sentences": sentences}).value["results"]
    assert {row["abstained"] for row in results} == {None} and all(row["label"] for row in results)


def test_a_registry_that_does_not_answer_is_asked_again(start: Start) -> None:
    process = start("serving.poll=0.1", MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    process.said("MLflow at http://127.0.0.1:9 ")
    assert process.client.send("/v2/health/live").status == 200
    assert process.client.send("/v2/health/ready").status == 503
    assert process.stop() == 0
    assert process.log.read_text().count("MLflow at") == 1


def trial(process: Process) -> tuple[int, int]:
    """Return how many requests, of three texts each, both versions have computed, and how many version 2 has."""
    names = 'shadow_answers_total{outcome="same",version="2"}', 'model_seconds_count{version="2"}'
    lines = process.client.send("/metrics").value.splitlines()
    found = dict(line.removeprefix("spark_bert_").rsplit(" ", 1) for line in lines)
    texts, requests = (int(float(found.get(name, 0))) for name in names)
    return texts // 3, requests


def test_the_challenger_is_compared_and_answers_its_share(tmp_path: Path, made: Artifact, start: Start) -> None:
    first, second = (add(tmp_path, made, f"{name:-<16}") for name in ("first", "second"))
    promote(tmp_path, first)
    registry = Champions(Server(tmp_path), MODEL)
    registry.set_challenger(second)
    process = start("serving.poll=0.1", "serving.threads=1", "serving.shadow=0.5", "serving.canary=0.5")
    await_version(process.client, "2")

    def answered(number: int) -> str:
        reply = process.client.post("/query", {"sentences": SENTENCES[:3]}, X_Request_ID=f"request {number}")
        return str(reply.value["model"]["version"])

    versions = [answered(number) for number in range(40)]
    assert 8 <= versions.count("2") <= 32
    assert [answered(number) for number in range(40)] == versions  # an id keeps its version
    exactly = process.client.post(f"/v2/models/{MODEL}/versions/2/infer", TENSORS)
    assert exactly.value["model_version"] == "2"
    before, requests = trial(process)
    assert requests == 2 * versions.count("2") + 1 + before
    assert {answered(versions.index("1")) for _ in range(40)} == {"1"}
    for _ in range(100):  # answers are given before they are compared
        if trial(process)[0] > before:
            break
        time.sleep(0.1)
    assert before < trial(process)[0] < before + 40  # some of the requests with one id, and not all

    registry.remove_challenger(second)
    process.said("the model is no longer tried out")
    assert {answered(number) for number in range(40)} == {"1"}
    assert process.client.send(f"/v2/models/{MODEL}/versions/2/ready").status == 404
    assert process.stop() == 0


def test_a_bad_champion_stays_out(tmp_path: Path, made: Artifact, start: Start) -> None:
    examples = json.loads((made.path / "examples.json").read_text(encoding="utf-8"))
    examples["logits"] = {form: [row[::-1] for row in rows] for form, rows in examples["logits"].items()}
    good, wrong = add(tmp_path, made, "good------------"), add(tmp_path, made, "wrong-----------", examples)
    damaged, later = add(tmp_path, made, "damaged---------"), add(tmp_path, made, "later-----------")
    (tmp_path / "artifacts/package/damaged---------/model/config.json").write_text("{}")
    broken = add(tmp_path, made, "broken----------", {"texts": 3})
    promote(tmp_path, good)
    process = start("serving.poll=0.1", "serving.threads=1")
    await_version(process.client, "1")
    promote(tmp_path, wrong)
    process.said("version 2 of", "is not used: ", "does not answer as it did")
    promote(tmp_path, damaged)
    process.said("version 3 of", "is not used: ", "config.json")
    promote(tmp_path, broken)
    process.said("version 5 of", "is not used: ")
    assert process.client.post("/query", {"sentences": "good"}).value["model"]["version"] == "1"
    assert 'spark_bert_loads_total{outcome="refused"} 3.0' in process.client.send("/metrics").value
    promote(tmp_path, later)
    await_version(process.client, "4")
    assert process.stop() == 0


def test_a_champion_whose_volume_is_mounted_late_is_used_then(tmp_path: Path, made: Artifact, start: Start) -> None:
    promote(tmp_path, add(tmp_path, made, "late------------"))
    volume, elsewhere = tmp_path / "artifacts/package", tmp_path / "elsewhere"
    volume.rename(elsewhere)
    process = start("serving.poll=0.1", "serving.threads=1")
    process.said("version 1 of", "is not used: ")
    assert process.client.post("/query", {"sentences": "good"}).headers["retry-after"] == "1"
    time.sleep(1)  # meanwhile, it is tried several times
    elsewhere.rename(volume)
    await_version(process.client, "1")
    assert process.log.read_text(encoding="utf-8").count("is not used: ") == 1
    metrics = process.client.send("/metrics").value
    assert all(f'spark_bert_loads_total{{outcome="{name}"}} 1.0' in metrics for name in ("refused", "used"))
    assert process.stop() == 0
