"""Reading the spans that stages write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_spans(file: Path) -> list[dict[str, Any]]:
    """The spans of a file in the order of their ends, each with its resource."""
    requests = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    groups = [group for request in requests for group in request["resourceSpans"]]
    return [
        {**span, "resource": group["resource"]}
        for group in groups
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]


def attributes(of: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a span, or of a resource."""
    pairs = {pair["key"]: next(iter(pair["value"].items())) for pair in of["attributes"]}
    return {key: int(value) if kind == "intValue" else value for key, (kind, value) in pairs.items()}
