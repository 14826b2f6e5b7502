"""`POST /query`: `{"sentences": [...]}` in, `{"results": [...]}` out."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from tasks.serving.body import Asked, Body, checked, identity, read_json
from tasks.serving.refusal import Refusal
from tasks.serving.served_model import ServedModel
from tasks.serving.service import Answers

_KEYS = ("sentences", "explain", "id")


def read(body: Body, model: ServedModel) -> Asked:
    """Read a request for a model; raise Refusal if there is something else in the body."""
    value = read_json(body.json if body.binary is None else body.json + body.binary)
    for key in value:  # an unknown one may be misspelled
        if key not in _KEYS:
            raise Refusal(f"the body has the key {key[:50]!r}, which means nothing: the keys are {', '.join(_KEYS)}")
    if "sentences" not in value:
        raise Refusal('the body has no key "sentences"')
    sentences = value["sentences"]
    rows = [sentences] if isinstance(sentences, str) else sentences
    if not isinstance(rows, list):
        raise Refusal('"sentences" is neither a text nor a list of texts')
    if not rows:
        raise Refusal('"sentences" is an empty list')
    if len(model.package.columns) == 2:
        texts = _pairs(rows)
    else:
        texts = [[checked(row, f"sentence {number}") for number, row in enumerate(rows)]]
    explain = value.get("explain", False)
    if not isinstance(explain, bool):
        raise Refusal('"explain" is neither true nor false')
    return Asked(texts, identity(value), _written, explain)


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
