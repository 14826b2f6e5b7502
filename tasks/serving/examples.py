"""What the OpenAPI page says of requests and responses, with examples that can be tried there."""

from __future__ import annotations

from typing import Any

from tasks.serving import refusal
from tasks.serving.refusal import Refusal

#: The statuses of refusals. Gone is not among them, because its client has gone.
_REFUSALS: tuple[type[Refusal], ...] = (
    Refusal, refusal.Unauthorized, refusal.Unknown, refusal.SlowClient, refusal.TooLarge,
    refusal.Overloaded, refusal.NotReady, refusal.TooSlow,
)  # fmt: skip


def _body(schema: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    values = {name: {"value": value} for name, value in examples.items()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": values}}}}


def _responses(answer: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    described: dict[int | str, dict[str, Any]] = {kind.status: {"description": _first_line(kind)} for kind in _REFUSALS}
    described[200] = {"description": "The answers.", "content": {"application/json": {"example": answer}}}
    return described


def _first_line(kind: type[Refusal]) -> str:
    return str(kind.__doc__).partition("\n")[0]


_PAIR = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
_SENTENCES = {
    "description": "A text, a list of texts, or a list of pairs of texts.",
    "anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, _PAIR]}}],
}
QUERY = _body(
    {
        "type": "object",
        "required": ["sentences"],
        "properties": {"sentences": _SENTENCES, "id": {"type": "string"}},
        "additionalProperties": False,
    },
    {
        "texts": {"sentences": ["A moving and funny film.", "Two hours that nobody gives me back."]},
        "one text": {"sentences": "A moving and funny film."},
        "pairs": {"sentences": [["A man plays a guitar.", "Someone makes music."]]},
    },
)
_INPUT = {"name": "sentence", "shape": [2], "datatype": "BYTES", "data": ["A moving film.", "Two lost hours."]}
INFER = _body(
    {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "inputs": {"type": "array", "items": {"type": "object"}},
            "outputs": {"type": "array", "items": {"type": "object"}},
        },
    },
    {"texts": {"inputs": [_INPUT]}},
)
_RESULTS = [
    {"label": "positive", "probabilities": {"negative": 0.016, "positive": 0.984}},
    {"label": "negative", "probabilities": {"negative": 0.981, "positive": 0.019}},
]
_MODEL = {"name": "spark-bert-movie-reviews", "version": "3"}
QUERY_RESPONSES = _responses({"results": _RESULTS, "model": _MODEL, "id": "cff04fd8ab26495c8c3cfe0865014daa"})
_LABELS = {"labels": ["negative", "positive"]}
_OUTPUTS = [
    {"name": "label", "datatype": "INT64", "shape": [2], "parameters": _LABELS, "data": [1, 0]},
    {
        "name": "probabilities",
        "datatype": "FP32",
        "shape": [2, 2],
        "parameters": _LABELS,
        "data": [0.016, 0.984, 0.981, 0.019],
    },
]
_ANSWER = {"model_name": _MODEL["name"], "model_version": _MODEL["version"], "id": "7", "outputs": _OUTPUTS}
INFER_RESPONSES = _responses(_ANSWER)
