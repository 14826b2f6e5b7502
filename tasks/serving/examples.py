"""What the OpenAPI page says of the bodies of requests, with examples that can be tried there."""

from __future__ import annotations

from typing import Any


def _body(schema: dict[str, Any], examples: dict[str, Any]) -> dict[str, Any]:
    values = {name: {"value": value} for name, value in examples.items()}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": values}}}}


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
