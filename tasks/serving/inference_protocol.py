"""The Open Inference Protocol, version 2, which KServe, Triton and others speak, over HTTP with JSON.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks.inference.packaged_model import PackagedModel
from tasks.serving.refusal import Refusal
from tasks.serving.served_model import ServedModel
from tasks.serving.service import Answers
from tasks.serving.texts import Asked, checked, identity, read_json

Tensor = dict[str, Any]


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


def _outputs(package: PackagedModel) -> list[Tensor]:
    """Return the outputs of a model, without data."""
    if package.kind == "regression":
        return [{"name": "score", "datatype": "FP32", "shape": [-1]}]
    labels, every = {"parameters": {"labels": package.labels}}, [-1, package.outputs]
    name, shape = ("labels", every) if package.kind == "multilabel" else ("label", [-1])
    return [
        {"name": name, "datatype": "INT64", "shape": shape, **labels},
        {"name": "probabilities", "datatype": "FP32", "shape": every, **labels},
    ]


def read(body: bytes, model: ServedModel) -> Asked:
    """Read a request.

    Args:
        body: the body.
        model: what answers.

    Raises:
        Refusal: if there is something else in the body.
    """
    value, columns = read_json(body), model.package.columns
    tensors = _named(value.get("inputs"), "inputs")
    if sorted(tensors) != sorted(columns):
        found = ", ".join(map(ascii, tensors)) or "missing"
        raise Refusal(f"the inputs are {found:.200}, but those of the model are {', '.join(columns)}")
    texts = [_texts(tensors[name]) for name in columns]
    if len({len(column) for column in texts}) > 1:
        raise Refusal("the inputs have different numbers of rows")
    outputs = {output["name"]: output for output in _outputs(model.package)}
    names = list(_named(value.get("outputs", []), "outputs")) or list(outputs)
    unknown = [name for name in names if name not in outputs]
    if unknown:
        raise Refusal(f"there is no output {unknown[0]!a:.50}: the outputs are {', '.join(outputs)}")
    wanted = [outputs[name] for name in names]
    return Asked(texts, identity(value), lambda answers, name: _written(answers, name, wanted))


def _named(tensors: Any, what: str) -> dict[str, Tensor]:
    """Return tensors by their names."""
    if not isinstance(tensors, list) or not all(isinstance(tensor, dict) for tensor in tensors):
        raise Refusal(f'"{what}" is not a list of tensors')
    found: dict[str, Tensor] = {}
    for tensor in tensors:
        name = tensor.get("name")
        if not isinstance(name, str) or name in found:
            raise Refusal(f'a tensor of "{what}" has no name of its own')
        found[name] = tensor
    return found


def _texts(tensor: Tensor) -> list[str]:
    """Return the texts of a tensor, whose shape is [rows] or [rows, 1]."""
    name, data, shape = tensor["name"], tensor.get("data"), tensor.get("shape")
    if tensor.get("datatype") != "BYTES":
        raise Refusal(f"the datatype of {name} is {tensor.get('datatype')!r:.50}: send BYTES")
    if not isinstance(data, list) or not data:
        raise Refusal(f"{name} has no data: send a list of strings, because binary tensors are not supported")
    rows = [row[0] for row in data] if all(isinstance(row, list) and len(row) == 1 for row in data) else data
    if _rows_of(shape) != len(rows):
        raise Refusal(f"the shape of {name} is {shape!r:.50}, but its data are {len(rows)} texts: send [{len(rows)}]")
    return [checked(text, f"row {number} of {name}") for number, text in enumerate(rows)]


def _rows_of(shape: Any) -> int | None:
    """Return the number of rows of the shape [rows] or [rows, 1]; None if it is another one."""
    if not isinstance(shape, list) or not shape or shape[1:] not in ([], [1]):
        return None
    return shape[0] if type(shape[0]) is int else None


def _written(answers: Answers, name: str, wanted: list[Tensor]) -> dict[str, Any]:
    """Return the response with the outputs that were asked for."""
    model = answers.model
    made = [_tensor(output, answers) for output in wanted]
    return {"model_name": model.name, "model_version": model.version, "id": name, "outputs": made}


def _tensor(output: Tensor, answers: Answers) -> Tensor:
    labels = answers.model.package.labels
    values: list[Any] = answers.columns[output["name"]]
    if output["name"] == "label":
        values = [labels.index(label) for label in values]
    if output["name"] == "labels":
        values = [[int(label in row) for label in labels] for row in values]
    array = np.array(values, np.int64 if output["datatype"] == "INT64" else np.float32)
    return {**output, "shape": list(array.shape), "data": array.ravel().tolist()}
