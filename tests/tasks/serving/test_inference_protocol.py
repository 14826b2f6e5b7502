"""The Open Inference Protocol: its public client, and what is refused."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from tasks.inference.packaged_model import PackagedModel
from tests.tasks.serving.conftest import Client
from tests.tasks.stages.pipeline.package.packages import SENTENCES

INFER = "/v2/models/spark-bert/infer"


def test_the_inference_protocol(client: Client, package: Path) -> None:
    data = SENTENCES[:3]
    tensor = {"name": "sentence", "shape": [3], "datatype": "BYTES", "data": data}
    reply = client.post("/v2/models/spark-bert/infer", {"id": "7", "inputs": [tensor]})
    assert reply.status == 200, reply
    outputs = {output["name"]: output for output in reply.value["outputs"]}
    model = PackagedModel(package)
    expected = model.probabilities(model.logits([data]))
    assert outputs["label"]["datatype"] == "INT64" and outputs["label"]["data"] == expected.argmax(1).tolist()
    assert outputs["probabilities"]["shape"] == [3, 2]
    np.testing.assert_allclose(np.reshape(outputs["probabilities"]["data"], (3, 2)), expected, atol=1e-4)
    assert (reply.value["model_name"], reply.value["id"]) == ("spark-bert", "7")

    version = f"/v2/models/spark-bert/versions/{package.name}"
    some = client.post(f"{version}/infer", {"inputs": [tensor], "outputs": [{"name": "label"}]}).value["outputs"]
    assert [output["name"] for output in some] == ["label"]
    assert client.send(version).value == client.send("/v2/models/spark-bert").value
    assert client.send(version).value["inputs"] == [{"name": "sentence", "datatype": "BYTES", "shape": [-1]}]
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/spark-bert/ready", f"{version}/ready"):
        assert client.send(path).status == 200, path


@pytest.mark.parametrize(
    ("sends", "receives", "how"),
    [
        (True, None, None),  # its defaults
        (True, {}, "gzip"),
        (False, {"binary_data": False}, "deflate"),
        (True, {"binary_data": False}, None),
        (False, None, None),
    ],
)
def test_a_public_client_of_the_protocol_gets_the_answers(
    client: Client, package: Path, sends: bool, receives: dict[str, bool] | None, how: str | None
) -> None:
    public = triton.InferenceServerClient(client.address.removeprefix("http://"))
    assert public.is_server_live() and public.is_server_ready() and public.is_model_ready("spark-bert", package.name)
    assert [one["name"] for one in public.get_model_metadata("spark-bert")["inputs"]] == ["sentence"]
    assert public.get_model_config("spark-bert")["input"][0] == {
        "name": "sentence",
        "data_type": "TYPE_STRING",
        "dims": [-1],
    }
    texts = triton.InferInput("sentence", [40], "BYTES")
    texts.set_data_from_numpy(np.array(SENTENCES[:40], dtype=object), binary_data=sends)
    wanted = receives and [triton.InferRequestedOutput(name, **receives) for name in ("label", "probabilities")]
    answer = public.infer("spark-bert", [texts], outputs=wanted, request_id="8", request_compression_algorithm=how)
    model = PackagedModel(package)
    expected = model.probabilities(model.logits([SENTENCES[:40]]))
    assert answer.get_response()["id"] == "8"
    assert answer.as_numpy("label").tolist() == expected.argmax(1).tolist()
    np.testing.assert_allclose(answer.as_numpy("probabilities"), expected, atol=1e-4)
    [stats] = public.get_inference_statistics("spark-bert", package.name)["model_stats"]
    assert stats["version"] == package.name and stats["inference_stats"]["success"]["count"] >= 1
    public.close()


CLASSES = {"classification": 3}
TENSOR = {"name": "sentence", "shape": [1], "datatype": "BYTES", "data": ["good"]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, '"inputs" is not a list'),
        ({"inputs": [3]}, '"inputs" is not a list'),
        ({"inputs": [{**TENSOR, "name": "text"}]}, "the inputs are 'text', but those of the model are sentence"),
        ({"inputs": [TENSOR, TENSOR]}, "no name of its own"),
        ({"inputs": [{**TENSOR, "datatype": "FP32"}]}, "'FP32': send BYTES"),
        ({"inputs": [{**TENSOR, "shape": [2]}]}, "its data are 1 texts: send [1]"),
        ({"inputs": [{**TENSOR, "shape": [0], "data": [[]]}]}, "send [1]"),
        ({"inputs": [{**TENSOR, "shape": [2], "data": [["a", "b"], []]}]}, "row 0 of sentence is a list"),
        ({"inputs": [{**TENSOR, "shape": "x"}]}, "send [1]"),
        ({"inputs": [{**TENSOR, "name": "\ud800"}]}, "the inputs are '\\ud800'"),
        ({"inputs": [{**TENSOR, "shape": [True]}]}, "send [1]"),
        ({"inputs": [{**TENSOR, "data": [3]}]}, "row 0 of sentence is a number"),
        ({"inputs": [{"name": "sentence", "shape": [1], "datatype": "BYTES"}]}, "or a binary tensor"),
        ({"inputs": [TENSOR], "outputs": [{"name": "score"}]}, "no output 'score'"),
        ({"inputs": [TENSOR], "outputs": [{"name": "label", "parameters": CLASSES}]}, "classification, which is not"),
        ({"inputs": [TENSOR], "parameters": [3]}, '"parameters" is not an object'),
        ({"inputs": [{**TENSOR, "parameters": {"binary_data_size": 4}}]}, "is 4, but 0 bytes are left"),
    ],
)
def test_bad_tensors_are_refused_with_the_reason(client: Client, value: Any, message: str) -> None:
    reply = client.post("/v2/models/spark-bert/infer", value)
    assert reply.status == 400 and message in reply.value["error"], reply


@pytest.mark.parametrize("path", ["/v2/models/other", "/v2/models/spark-bert/versions/0", "/v2/models/other/ready"])
def test_an_unknown_model_or_version_is_404(client: Client, path: str) -> None:
    reply = client.send(path)
    assert reply.status == 404 and ": spark-bert has " in reply.value["error"]


def test_what_has_no_value_may_be_null(client: Client) -> None:
    empty = {"id": None, "outputs": None, "parameters": None}
    reply = client.post(INFER, {**empty, "inputs": [{**TENSOR, "parameters": None}]})
    assert reply.status == 200 and len(reply.value["outputs"]) == 2, reply
    assert client.post("/query", {"sentences": "good", "id": None}).status == 200


def test_parameters_are_scalars(client: Client) -> None:
    described = client.send("/v2/models/spark-bert").value["outputs"]
    for output in [*described, *client.post(INFER, {"inputs": [TENSOR]}).value["outputs"]]:
        assert json.loads(output["parameters"]["labels"]) == ["negative", "positive"]


def binary(size: Any, data: bytes, header: str = "") -> tuple[bytes, dict[str, str]]:
    """A request with a binary tensor, and its header."""
    tensor = {"name": "sentence", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [tensor]}).encode()
    return head + data, {"Inference_Header_Content_Length": header or str(len(head))}


@pytest.mark.parametrize(
    ("size", "data", "header", "message"),
    [
        (8, b"\4\0\0\0good", "x", "Inference-Header-Content-Length is 'x'"),
        (8, b"\4\0\0\0good", "9" * 5_000, "Inference-Header-Content-Length is '999"),
        (8, b"\4\0\0\0good", "9999", "Inference-Header-Content-Length is '9999', but the body has"),
        (9, b"\4\0\0\0good", "", "is 9, but 8 bytes are left"),
        (-1, b"\4\0\0\0good", "", "is -1, but 8 bytes are left"),
        (True, b"\4\0\0\0good", "", "is True, but 8 bytes are left"),
        (7, b"\4\0\0\0good", "", "end within row 0"),
        (8, b"\5\0\0\0good", "", "end within row 0"),
        (8, b"\3\0\0\0good", "", "end within row 1"),
        (8, b"\4\0\0\0goo\xff", "", "row 0 of sentence is not UTF-8"),
        (8, b"\4\0\0\0good!", "", "1 bytes after the JSON belong to no tensor"),
        (16, b"\4\0\0\0good" * 2, "", "its data are 2 texts: send [2]"),
    ],
)
def test_bad_binary_tensors_are_refused_with_the_reason(
    client: Client, size: Any, data: bytes, header: str, message: str
) -> None:
    body, headers = binary(size, data, header)
    reply = client.send(INFER, body, **headers)
    assert reply.status == 400 and message in reply.value["error"], reply


QUERY = json.dumps({"sentences": "good"}).encode()


@pytest.mark.parametrize(
    ("encoding", "body", "status", "message"),
    [
        ("gzip", gzip.compress(QUERY), 200, ""),
        ("deflate", zlib.compress(QUERY), 200, ""),
        ("identity", QUERY, 200, ""),
        ("br", QUERY, 415, "send gzip, deflate"),
        ("gzip", QUERY, 400, "the body is not gzip"),
        ("gzip", gzip.compress(QUERY)[:-9], 400, "does not end where"),
        ("gzip", gzip.compress(QUERY) * 2, 400, "does not end where"),
        ("gzip", gzip.compress(b" " * 10_000_000), 413, "more than 20,000 bytes"),
    ],
)
def test_compressed_bodies(client: Client, encoding: str, body: bytes, status: int, message: str) -> None:
    reply = client.send("/query", body, Content_Encoding=encoding)
    assert reply.status == status and message in reply.value.get("error", ""), reply
