"""What the OpenAPI page says of requests and responses, with examples that can be tried there."""

from __future__ import annotations

from typing import Any

from tasks.serving import refusal
from tasks.serving.refusal import Refusal

#: The statuses of refusals. Gone is not among them, because its client has gone.
_REFUSALS: tuple[type[Refusal], ...] = (
    Refusal, refusal.Unauthorized, refusal.Unknown, refusal.SlowClient, refusal.TooLarge, refusal.Unsupported,
    refusal.Overloaded, refusal.NotReady, refusal.TooSlow,
)  # fmt: skip


def _body(schema: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    values = {name: {"value": value} for name, value in examples.items()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": values}}}}


def _responses(schema: dict[str, Any], answer: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    def described(what: str, **content: Any) -> dict[str, Any]:
        return {"description": what, "content": {"application/json": content}}

    refusals: dict[int | str, dict[str, Any]] = {
        kind.status: described(str(kind.__doc__), schema=_ERROR) for kind in _REFUSALS
    }
    return {**refusals, 200: described("The answers.", schema=schema, example=answer)}


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


_STRING, _NUMBER = {"type": "string"}, {"type": "number"}
_ID = {"type": ["string", "null"]}
_ERROR = _object({"error": _STRING}, id=_STRING)
_PAIR = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
_SENTENCES = {
    "description": "A text, a list of texts, or a list of pairs of texts.",
    "anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, _PAIR]}}],
}
_EXPLAIN = {
    "type": "boolean",
    "default": False,
    "description": "Whether each result says how much each word contributes to it. A text then counts as one text more "
    "for each of its words.",
}
QUERY = _body(
    {**_object({"sentences": _SENTENCES}, explain=_EXPLAIN, id=_ID), "additionalProperties": False},
    {
        "texts": {"sentences": ["A moving and funny film.", "Two hours that nobody gives me back."]},
        "one text": {"sentences": "A moving and funny film."},
        "with an explanation": {"sentences": "A moving and funny film.", "explain": True},
        "pairs": {"sentences": [["A man plays a guitar.", "Someone makes music."]]},
    },
)
_INPUT = {"name": "sentence", "shape": [2], "datatype": "BYTES", "data": ["A moving film.", "Two lost hours."]}
_TENSORS = {"type": "array", "items": {"type": "object"}}
INFER = _body(
    _object({"inputs": _TENSORS}, id=_ID, outputs={**_TENSORS, "type": ["array", "null"]}),
    {"texts": {"inputs": [_INPUT]}},
)
_RESULTS = [
    {"label": "positive", "probabilities": {"negative": 0.016, "positive": 0.984}},
    {"label": "negative", "probabilities": {"negative": 0.981, "positive": 0.019}},
]
_MODEL = {"name": "spark-bert-movie-reviews", "version": "3"}
_FALLS = {
    "description": "By how much the probability of the label, of each of the labels, or the score falls without it.",
    "anyOf": [_NUMBER, {"type": "object", "additionalProperties": _NUMBER}],
}
_WORD = _object({"word": _STRING, "contribution": _FALLS}, text={"type": "integer", "enum": [1, 2]})
_RESULT = _object(
    {},
    label={"type": ["string", "null"]},
    labels={"type": "array", "items": _STRING},
    probabilities={"type": "object", "additionalProperties": _NUMBER},
    score=_NUMBER,
    explanation={"type": "array", "items": _WORD},
    abstained={"type": ["string", "null"]},
    label_set={"type": "array", "items": _STRING},
    low=_NUMBER,
    high=_NUMBER,
)
_NAMED = _object({"name": _STRING, "version": _STRING})
QUERY_RESPONSES = _responses(
    _object({"results": {"type": "array", "items": _RESULT}, "model": _NAMED, "id": _STRING}),
    {"results": _RESULTS, "model": _MODEL, "id": "cff04fd8ab26495c8c3cfe0865014daa"},
)
_LABELS = {"labels": '["negative", "positive"]'}
_CHANCES = [0.016, 0.984, 0.981, 0.019]
_OUTPUTS = [
    {"name": "label", "datatype": "INT64", "shape": [2], "parameters": _LABELS, "data": [1, 0]},
    {"name": "probabilities", "datatype": "FP32", "shape": [2, 2], "parameters": _LABELS, "data": _CHANCES},
]
_TENSOR = _object(
    {"name": _STRING, "datatype": _STRING, "shape": {"type": "array", "items": {"type": "integer"}}},
    parameters={"type": "object"},
    data={"type": "array", "items": {"type": ["number", "string"]}},
)
_OF_TENSORS = {"type": "array", "items": _TENSOR}
INFER_RESPONSES = _responses(
    _object({"model_name": _STRING, "model_version": _STRING, "id": _STRING, "outputs": _OF_TENSORS}),
    {"model_name": _MODEL["name"], "model_version": _MODEL["version"], "id": "7", "outputs": _OUTPUTS},
)
