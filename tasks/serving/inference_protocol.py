"""The Open Inference Protocol, version 2, of KServe, Triton and others, with tensors as JSON or binary.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/protocol/extension_binary_data.html
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response

from tasks.inference.packaged_model import Array, PackagedModel
from tasks.serving.body import JSON_SIZE, Asked, Body, checked, identity, read_json
from tasks.serving.refusal import Refusal
from tasks.serving.served_model import ServedModel
from tasks.serving.service import Answers

Tensor = dict[str, Any]
#: What the protocol's data types are called in Triton's configuration of a model, and in numpy.
_CONFIG_TYPES = {"BYTES": "TYPE_STRING", "INT64": "TYPE_INT64", "FP32": "TYPE_FP32"}
_NUMBERS = {"INT64": "<i8", "FP32": "<f4"}


def metadata(model: ServedModel) -> dict[str, Any]:
    """Return what the protocol says of a model."""
    package = model.package
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": model.form,
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in package.columns],
        "outputs": _outputs(package),
    }


def config(model: ServedModel) -> dict[str, Any]:
    """Return the configuration of a model as Triton describes it."""
    described = metadata(model)
    tensors = {
        name: [
            {"name": each["name"], "data_type": _CONFIG_TYPES[each["datatype"]], "dims": each["shape"]}
            for each in described[f"{name}s"]
        ]
        for name in ("input", "output")
    }
    # The rows are a dimension of the tensors, so the size of batches is not for Triton to choose.
    return {"name": model.name, "platform": model.form, "max_batch_size": 0, **tensors}


def _outputs(package: PackagedModel) -> list[Tensor]:
    labels, every = {"parameters": {"labels": json.dumps(package.labels)}}, [-1, package.outputs]
    known: dict[str, Tensor] = {
        "score": {"datatype": "FP32", "shape": [-1]},
        "label": {"datatype": "INT64", "shape": [-1], **labels},
        "labels": {"datatype": "INT64", "shape": every, **labels},
        "probabilities": {"datatype": "FP32", "shape": every, **labels},
        "abstained": {"datatype": "BYTES", "shape": [-1]},
        "label_set": {"datatype": "INT64", "shape": every, **labels},
        "low": {"datatype": "FP32", "shape": [-1]},
        "high": {"datatype": "FP32", "shape": [-1]},
    }
    return [{"name": name, **known[name]} for name in package.answers(np.zeros((1, package.outputs)))]


def read(body: Body, model: ServedModel) -> Asked:
    """Read a request for a model; raise Refusal if there is something else in the body."""
    value, columns = read_json(body.json), model.package.columns
    tensors = _named(value.get("inputs"), "inputs")
    if sorted(tensors) != sorted(columns):
        found = ", ".join(map(ascii, tensors)) or "missing"
        raise Refusal(f"the inputs are {found:.200}, but those of the model are {', '.join(columns)}")
    data = _with_binary(tensors, body.binary or b"")
    texts = [_texts(data[name]) for name in columns]
    if len({len(column) for column in texts}) > 1:
        raise Refusal("the inputs have different numbers of rows")
    wanted = _wanted(value, model.package)
    return Asked(texts, identity(value), lambda answers, name: _written(answers, name, wanted))


def _wanted(value: dict[str, Any], package: PackagedModel) -> list[tuple[Tensor, bool]]:
    """Return the outputs that a request asks for, all if it names none, and whether their data follow the JSON."""
    outputs = {output["name"]: output for output in _outputs(package)}
    named = _named(value.get("outputs") or [], "outputs") or {name: {} for name in outputs}
    all_binary = _parameters(value).get("binary_data_output", False)
    wanted = []
    for name, tensor in named.items():
        parameters = _parameters(tensor)
        if name not in outputs:
            raise Refusal(f"there is no output {name!a:.50}: the outputs are {', '.join(outputs)}")
        if "classification" in parameters:
            raise Refusal(f"the output {name} has the parameter classification, which is not supported")
        wanted.append((outputs[name], parameters.get("binary_data", all_binary) is True))
    return wanted


def _parameters(value: dict[str, Any]) -> dict[str, Any]:
    found = value.get("parameters")
    if not isinstance(found, dict | None):
        raise Refusal('"parameters" is not an object')
    return found or {}


def _named(tensors: Any, what: str) -> dict[str, Tensor]:
    if not isinstance(tensors, list) or not all(isinstance(tensor, dict) for tensor in tensors):
        raise Refusal(f'"{what}" is not a list of tensors')
    found: dict[str, Tensor] = {}
    for tensor in tensors:
        name = tensor.get("name")
        if not isinstance(name, str) or name in found:
            raise Refusal(f'a tensor of "{what}" has no name of its own')
        found[name] = tensor
    return found


def _with_binary(tensors: dict[str, Tensor], binary: bytes) -> dict[str, Tensor]:
    """Return the tensors with the data of those that are binary, which follow one another in their order."""
    found: dict[str, Tensor] = {}
    start = 0
    for name, tensor in tensors.items():
        size = _parameters(tensor).get("binary_data_size")
        if size is None:
            found[name] = tensor
            continue
        if type(size) is not int or not 0 <= size <= len(binary) - start:
            raise Refusal(f"the binary_data_size of {name} is {size!r:.50}, but {len(binary) - start} bytes are left")
        found[name] = {**tensor, "data": _strings(binary[start : start + size], name)}
        start += size
    if start < len(binary):
        raise Refusal(f"{len(binary) - start} bytes after the JSON belong to no tensor: give each its binary_data_size")
    return found


def _strings(data: bytes, name: str) -> list[str]:
    """Return the texts of a binary tensor: each has its number of bytes before it, in four bytes."""
    found: list[str] = []
    start = 0
    while start < len(data):
        begin = start + 4
        start = begin + int.from_bytes(data[start:begin], "little")
        if start > len(data):
            raise Refusal(f"the binary data of {name} end within row {len(found)}")
        try:
            found.append(data[begin:start].decode())
        except UnicodeDecodeError as error:
            raise Refusal(f"row {len(found)} of {name} is not UTF-8") from error
    return found


def _texts(tensor: Tensor) -> list[str]:
    """Return the texts of a tensor, whose shape is [rows] or [rows, 1]."""
    name, data, shape = tensor["name"], tensor.get("data"), tensor.get("shape")
    if tensor.get("datatype") != "BYTES":
        raise Refusal(f"the datatype of {name} is {tensor.get('datatype')!r:.50}: send BYTES")
    if not isinstance(data, list) or not data:
        raise Refusal(f"{name} has no data: send a list of strings, or a binary tensor")
    rows = [row[0] for row in data] if all(isinstance(row, list) and len(row) == 1 for row in data) else data
    if shape not in ([len(rows)], [len(rows), 1]) or type(shape[0]) is not int:
        raise Refusal(f"the shape of {name} is {shape!r:.50}, but its data are {len(rows)} texts: send [{len(rows)}]")
    return [checked(text, f"row {number} of {name}") for number, text in enumerate(rows)]


def _written(answers: Answers, name: str, wanted: list[tuple[Tensor, bool]]) -> Response:
    model, made, binary = answers.model, [], []
    for output, is_binary in wanted:
        array = _array(output, answers)
        tensor = {**output, "shape": list(array.shape)}
        if is_binary:
            binary.append(_bytes(array))
            tensor["parameters"] = {**output.get("parameters", {}), "binary_data_size": len(binary[-1])}
        else:
            tensor["data"] = array.ravel().tolist()
        made.append(tensor)
    value = {"model_name": model.name, "model_version": model.version, "id": name, "outputs": made}
    if not binary:
        return JSONResponse(value)
    head = json.dumps(value).encode()
    size = {JSON_SIZE: str(len(head))}
    return Response(b"".join([head, *binary]), headers=size, media_type="application/octet-stream")


def _array(output: Tensor, answers: Answers) -> Array:
    labels = answers.model.package.labels
    values: list[Any] = answers.columns[output["name"]]
    if output["name"] == "label":
        values = [-1 if label is None else labels.index(label) for label in values]
    if output["name"] in ("labels", "label_set"):
        values = [[int(label in row) for label in labels] for row in values]
    if output["name"] == "abstained":
        values = [reason or "" for reason in values]
    return np.array(values, _NUMBERS.get(output["datatype"], object))


def _bytes(array: Array) -> bytes:
    """Return the binary data of a tensor: each text has its number of bytes before it, in four bytes."""
    if array.dtype != object:
        return array.tobytes()
    texts = [text.encode() for text in array.tolist()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
