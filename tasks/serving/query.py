"""`POST /query`: `{"sentences": [...]}` in, `{"results": [...]}` out."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from tasks.serving.body import Body
from tasks.serving.refusal import Refusal
from tasks.serving.served_model import ServedModel
from tasks.serving.service import Answers
from tasks.serving.texts import Asked, check_keys, checked, identity, read_json

_KEYS = ("sentences", "id")


def read(body: Body, model: ServedModel) -> Asked:
    """Read a request.

    Args:
        body: the body.
        model: what answers.

    Raises:
        Refusal: if there is something else in the body.
    """
    value = read_json(body.json if body.binary is None else body.json + body.binary)
    check_keys(value, _KEYS)
    if "sentences" not in value:
        raise Refusal('the body has no key "sentences"')
    sentences = value["sentences"]
    rows = [sentences] if isinstance(sentences, str) else sentences
    if not isinstance(rows, list):
        raise Refusal('"sentences" is neither a text nor a list of texts')
    if not rows:
        raise Refusal('"sentences" is an empty list')
    texts = _singles(rows) if len(model.package.columns) == 1 else _pairs(rows)
    return Asked(texts, identity(value), _written)


def _singles(rows: list[Any]) -> list[list[str]]:
    return [[checked(row, f"sentence {number}") for number, row in enumerate(rows)]]


def _pairs(rows: list[Any]) -> list[list[str]]:
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 2:
            raise Refusal(f"sentence {number} is not a pair, but the model labels pairs: send a list of two texts")
    return [[checked(row[at], f"text {at + 1} of pair {number}") for number, row in enumerate(rows)] for at in (0, 1)]


def _written(answers: Answers, name: str) -> Response:
    model, columns = answers.model, answers.columns
    labels = model.package.labels
    if "probabilities" in columns:
        chances = [dict(zip(labels, row.tolist(), strict=True)) for row in columns["probabilities"]]
        columns = {**columns, "probabilities": chances}
    results = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return JSONResponse({"results": results, "model": {"name": model.name, "version": model.version}, "id": name})
