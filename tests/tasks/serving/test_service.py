"""The service over HTTP: answers, both protocols, and what it refuses."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from include.artifacts import revision, write_json
from include.stages import ExitCode
from tasks.inference.packaged_model import PackagedModel
from tests.tasks.serving.conftest import Client, Process, Start
from tests.tasks.stages.pipeline.package.packages import PAIRS, SENTENCES


def test_query_gives_the_answers_of_the_package(client: Client, package: Path) -> None:
    reply = client.post("/query", {"sentences": SENTENCES[:40]})
    expected = PackagedModel(package)
    columns = expected.answers(expected.logits([SENTENCES[:40]]))
    assert reply.status == 200
    assert [row["label"] for row in reply.value["results"]] == columns["label"]
    for row, chances in zip(reply.value["results"], columns["probabilities"], strict=True):
        assert list(row["probabilities"]) == ["negative", "positive"]
        assert list(row["probabilities"].values()) == pytest.approx(chances, abs=1e-4)
    assert reply.value["model"] == {"name": "spark-bert", "version": package.name}


def test_one_text_is_a_request_too_and_ids_come_back(client: Client) -> None:
    reply = client.post("/query", {"sentences": SENTENCES[0], "id": "mine"})
    assert len(reply.value["results"]) == 1 and reply.value["id"] == "mine"
    again = client.post("/query", {"sentences": SENTENCES[0]}, X_Request_ID="theirs")
    assert again.value["id"] == again.headers["x-request-id"] == "theirs"


def test_an_explanation_says_what_each_word_contributes(client: Client, package: Path) -> None:
    texts, model = [text for text in SENTENCES if len(text.split()) < 10][:3], PackagedModel(package)
    reply = client.post("/query", {"sentences": texts, "explain": True})
    plain = client.post("/query", {"sentences": texts}).value["results"]
    assert reply.status == 200
    for text, result, before in zip(texts, reply.value["results"], plain, strict=True):
        words, label = text.split(), model.labels.index(result["label"])
        others = [" ".join(words[:at] + words[at + 1 :]) for at in range(len(words))]
        whole, *changed = model.probabilities(model.logits([[text, *others]]))[:, label]
        explanation = result.pop("explanation")
        assert result == before | {"probabilities": pytest.approx(before["probabilities"], abs=1e-5)}
        assert [part["word"] for part in explanation] == words
        assert [part["contribution"] for part in explanation] == pytest.approx(whole - changed, abs=1e-4)
        assert any(abs(part["contribution"]) > 1e-3 for part in explanation)


def test_pairs_have_scores(pairs: Path, start: Start) -> None:
    process = start(f"serving.model={pairs}", "serving.threads=1")
    process.said("answers from now on")
    model = PackagedModel(pairs)
    expected = model.logits([[pair[at] for pair in PAIRS[:5]] for at in (0, 1)])[:, 0]
    reply = process.client.post("/query", {"sentences": [list(pair) for pair in PAIRS[:5]]})
    assert [row["score"] for row in reply.value["results"]] == pytest.approx(expected.tolist(), abs=1e-3)
    asked = {"sentences": [["good film", "bad"]], "explain": True}
    [explained] = process.client.post("/query", asked).value["results"]
    assert [(part["word"], part["text"]) for part in explained["explanation"]] == [("good", 1), ("film", 1), ("bad", 2)]
    left = model.logits([["film", "good", "good film"], ["bad", "bad", ""]])[:, 0]
    falls = [part["contribution"] for part in explained["explanation"]]
    assert falls == pytest.approx((explained["score"] - left).tolist(), abs=1e-3)
    assert "not a pair" in process.client.post("/query", {"sentences": ["single"]}).value["error"]
    assert process.stop() == 0


BAD: list[tuple[bytes, int, str]] = [
    (b"", 400, "not JSON"),
    (b"{", 400, "not JSON"),
    (b'{"sentences": ["\xff"]}', 400, "not UTF-8: byte 16 is 0xff"),
    (b"[" * 9000, 400, "JSON|nested too deeply"),
    ('{"sentences": "good"}'.encode("utf-16"), 400, "not UTF-8"),
    (b'{"sentences": ' + b"9" * 5000 + b"}", 400, "too many digits"),
    ('{"sentences": "\u200b"}'.encode(), 400, "sentence 0 is empty"),
    (b"[]", 400, "a list: send an object"),
    (b"{}", 400, 'no key "sentences"'),
    (b'{"sentence": "good"}', 400, "'sentence', which means nothing"),
    (b'{"sentences": []}', 400, "an empty list"),
    (b'{"sentences": 3}', 400, "nor a list of texts"),
    (b'{"sentences": ["good", null]}', 400, "sentence 1 is null: send a string"),
    (b'{"sentences": ["good", ["a", "b"]]}', 400, "sentence 1 is a list"),
    (b'{"sentences": [" "]}', 400, "sentence 0 is empty"),
    (b'{"sentences": ["a\\u0000b"]}', 400, "NUL"),
    (b'{"sentences": ["\\ud800"]}', 400, "surrogate"),
    (b'{"sentences": "good", "explain": 1}', 400, "neither true nor false"),
    (json.dumps({"sentences": ["good " * 20] * 2, "explain": True}).encode(), 413, "42 texts: send no more than 40"),
    (json.dumps({"sentences": "good" * 4000 + " film", "explain": True}).encode(), 413, "48,015 characters"),
    (b'{"sentences": "good", "id": 3}', 400, '"id" is not a string'),
    (b'{"sentences": "good", "id": "\\udfff"}', 400, '"id" is not a string'),
    (b'{"\\ud800": "good"}', 400, "which means nothing"),
    (json.dumps({"sentences": ["good"] * 41}).encode(), 413, "41 texts: send no more than 40"),
    (json.dumps({"sentences": "good " * 10_000}).encode(), 413, "more than 20,000 bytes"),
]


@pytest.mark.parametrize(("body", "status", "message"), BAD)
def test_a_bad_query_is_refused_with_the_reason(client: Client, body: bytes, status: int, message: str) -> None:
    reply = client.send("/query", body)
    assert reply.status == status, reply
    assert any(part in reply.value["error"] for part in message.split("|")), reply
    assert reply.value["id"]


@pytest.mark.parametrize("path", ["/", "/v2/", "/query"])
def test_other_paths_and_methods_are_refused_in_the_same_form(client: Client, path: str) -> None:
    reply = client.send(path)
    assert reply.status == (405 if path == "/query" else 404) and reply.value["error"].startswith(f"GET {path}: ")


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/spark-bert/ready", "/metrics"])
def test_a_head_is_answered_like_a_get(client: Client, path: str) -> None:
    address = urlsplit(client.address)
    connection = HTTPConnection(address.hostname or "", address.port)
    for method in ("HEAD", "GET"):  # on one connection: a body would be taken for the next answer
        connection.request(method, path)
        response = connection.getresponse()
        assert response.status == 200
        assert bool(response.read()) == (method == "GET")
    connection.close()


def test_the_version_of_the_service_is_said(client: Client) -> None:
    described = client.send("/openapi.json").value["info"]["version"]
    assert described == client.send("/v2").value["version"] == revision() != "unknown"


def test_a_long_id_is_cut(client: Client) -> None:
    reply = client.post("/query", {"sentences": "good"}, X_Request_ID="x" * 5000)
    assert reply.status == 200 and reply.value["id"] == reply.headers["x-request-id"] == "x" * 128


def test_the_openapi_page_has_examples_that_work(client: Client) -> None:
    described = client.send("/openapi.json").value
    content = described["paths"]["/query"]["post"]["requestBody"]["content"]["application/json"]
    for name in ("texts", "one text", "with an explanation"):
        assert client.post("/query", content["examples"][name]["value"]).status == 200


@pytest.mark.parametrize("path", ["/query", "/v2/models/{name}/infer"])
def test_the_openapi_page_has_responses_like_those_that_come(client: Client, path: str) -> None:
    described = client.send("/openapi.json").value["paths"][path]["post"]
    examples = described["requestBody"]["content"]["application/json"]["examples"]
    reply = client.post(path.format(name="spark-bert"), examples["texts"]["value"]).value
    answer = described["responses"]["200"]["content"]["application/json"]
    assert _form(answer["example"]) == _form(reply)
    assert set(answer["schema"]["required"]) == set(reply)
    assert {"400", "401", "404", "408", "413", "415", "429", "503", "504"} <= set(described["responses"])


def _form(value: Any) -> Any:
    """Return a value without its numbers and texts."""
    if isinstance(value, dict):
        return {name: _form(inner) for name, inner in value.items()}
    return [_form(inner) for inner in value] if isinstance(value, list) else type(value)


def test_the_openapi_page_loads_nothing_from_other_servers(client: Client) -> None:
    page = client.send("/docs").value
    loaded = re.findall(r"""(?:src|href)=["']([^"']+)""", page)
    assert any(path.endswith(".js") for path in loaded) and any(path.endswith(".css") for path in loaded)
    assert all(client.send(path).status == 200 for path in loaded if not path.endswith(".png")), loaded
    assert "https://" not in page


def test_metrics_count_what_has_happened(client: Client) -> None:
    def value(line: str) -> float:
        text = client.send("/metrics").value
        return next((float(row.rsplit(" ", 1)[1]) for row in text.splitlines() if row.startswith(line)), 0)

    refused, rows = value('spark_bert_refusals_total{reason="malformed"}'), value("spark_bert_batch_rows_sum")
    client.send("/query", b"")
    client.post("/query", {"sentences": SENTENCES[:7]})
    assert value('spark_bert_refusals_total{reason="malformed"}') == refused + 1
    assert value("spark_bert_batch_rows_sum") == rows + 7
    assert value('spark_bert_model{form="') == 1


def test_many_clients_at_once_get_each_their_own_answers(client: Client, package: Path) -> None:
    model = PackagedModel(package)
    expected = model.answers(model.logits([SENTENCES]))["label"]

    def ask(number: int) -> None:
        places = [(number * 7 + step) % len(SENTENCES) for step in range(1 + number % 5)]
        reply = client.post("/query", {"sentences": [SENTENCES[place] for place in places]})
        assert [row["label"] for row in reply.value["results"]] == [expected[place] for place in places]

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(200)))


def test_no_text_comes_into_the_log(service: Process) -> None:
    service.client.post("/query", {"sentences": ["confidential", None]})
    service.client.post("/query", {"sentences": ["confidential"]})
    assert "confidential" not in service.log.read_text(encoding="utf-8")


def test_a_token_is_asked_for(package: Path, tmp_path: Path, start: Start) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/serving_token").write_text("open sesame\n", encoding="utf-8")
    process = start(f"serving.model={package}", SPARK_BERT_SECRETS=str(tmp_path / "secrets"))
    process.said("answers from now on")
    value = {"sentences": "good"}
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "open sesame"}):
        refused = process.client.post("/query", value, **headers)
        assert refused.status == 401 and refused.headers["www-authenticate"] == "Bearer", headers
    for scheme in ("Bearer", "bearer"):
        assert process.client.post("/query", value, Authorization=f"{scheme} open sesame").status == 200
    assert process.client.send("/v2/health/ready").status == 200
    assert process.stop() == 0


def test_full_queue_deadline_and_slow_clients(package: Path, start: Start) -> None:
    process = start(f"serving.model={package}", "serving.queue_tokens=1024", "serving.deadline=5")
    process.said("answers from now on")
    value = {"sentences": SENTENCES[:20]}
    assert process.client.post("/query", {"sentences": SENTENCES * 20}).status == 413  # more than may ever wait

    with ThreadPoolExecutor(24) as pool:
        replies = list(pool.map(lambda _: process.client.post("/query", value), range(96)))
    assert {reply.status for reply in replies} <= {200, 429}
    assert any(reply.status == 200 for reply in replies)
    for reply in replies:
        assert reply.status == 200 or int(reply.headers["retry-after"]) >= 1

    many = {"sentences": ["good " * 24] * 20}  # tokenized in a thread, and they count meanwhile
    long = {"sentences": "good " * 20_000}  # truncated, and what is cut off does not count
    for asked, expected in ((many, {200, 429}), (long, {200})):
        with ThreadPoolExecutor(24) as pool:
            statuses = list(pool.map(lambda _, asked=asked: process.client.post("/query", asked).status, range(24)))
        assert set(statuses) == expected

    address = urlsplit(process.client.address)
    with socket.create_connection((address.hostname, address.port), timeout=20) as slow:
        slow.sendall(b"POST /query HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{")
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
    assert process.stop() == 0


def test_the_texts_of_a_client_that_has_gone_are_not_computed(package: Path, start: Start) -> None:
    process = start(f"serving.model={package}", "serving.threads=1")
    process.said("answers from now on")
    address = urlsplit(process.client.address)
    body = json.dumps({"sentences": SENTENCES * 5}).encode()
    head = f"POST /query HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(5):
        with socket.create_connection((address.hostname, address.port), timeout=20) as leaving:
            leaving.sendall(head + body)
    assert process.client.post("/query", {"sentences": "good"}).status == 200
    metrics = process.client.send("/metrics").value
    assert 'spark_bert_refusals_total{reason="gone"} 5.0' in metrics
    [waiting] = [line for line in metrics.splitlines() if line.startswith("spark_bert_waiting_tokens ")]
    assert float(waiting.split()[1]) == 0
    assert process.stop() == 0


def test_requests_that_have_begun_are_answered_when_it_stops(package: Path, start: Start) -> None:
    process = start(
        f"serving.model={package}", "serving.threads=1", "serving.queue_tokens=1000000", "serving.deadline=60"
    )
    process.said("answers from now on")
    with ThreadPoolExecutor(8) as pool:
        replies = [pool.submit(process.client.post, "/query", {"sentences": SENTENCES * 20}) for _ in range(8)]
        time.sleep(0.2)
        assert process.stop() == 0
        assert [reply.result().status for reply in replies] == [200] * 8


def test_what_is_no_package_is_refused_when_it_starts(tmp_path: Path, start: Start) -> None:
    (tmp_path / "service.log").touch()
    with pytest.raises(AssertionError, match="is not a package, because"):
        start(f"serving.model={tmp_path}").said("answers from now on")


def test_a_model_that_answers_otherwise_than_before_is_refused(package: Path, tmp_path: Path, start: Start) -> None:
    import shutil

    changed = shutil.copytree(package, tmp_path / "package")
    examples = json.loads((changed / "examples.json").read_text(encoding="utf-8"))
    for rows in examples["logits"].values():
        rows[3] = [-value for value in rows[3]]
    write_json(changed / "examples.json", examples)
    with pytest.raises(
        AssertionError,
        match=r"examples\.json: .* does not answer as it did when it was packaged \(.*: package the model again",
    ):
        start(f"serving.model={changed}").said("answers from now on")


def test_an_address_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [sys.executable, "-m", "tasks.serving", "--home", str(tmp_path), "--set", f"serving.port={port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ExitCode.BAD_INPUT
    (line,) = done.stderr.splitlines()
    assert f"cannot listen on port {port} of 127.0.0.1 (Address already in use" in line
    assert line.endswith("choose another serving.port or serving.host")
