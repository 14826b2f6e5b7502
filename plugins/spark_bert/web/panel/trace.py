"""The trace of a run, from the spans that its stages have written: in rows, which the page draws over one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import islice
from typing import Any

from include.folders import open_file
from include.stages import STAGES
from include.tracing import FOLDER, Span, read_part
from spark_bert.deployment.places import home
from spark_bert.web.panel.addresses import Chosen

_MOST = 4 << 20  # bytes of a stage's file that are read, from its end, because further tries append to it
_DRAWN = 1000  # spans of a run that are sent: first those that have failed, and then the longest ones
_DEEPEST = 8  # levels
_ATTRIBUTES, _CHARACTERS = 12, 200  # of a span, and of a text

#: The names of a span and of those that it is part of, the outermost first.
_Path = tuple[str, ...]


def read_trace(row: Chosen) -> dict[str, Any]:
    """Return the spans of each stage of a run that has written any. Times are in seconds, since 1970.

    Spans of the same name within the same part of a stage, such as the tries of a stage, share a row.
    """
    found = {stage: _read(row.run, stage) for stage in STAGES}
    spans = [span for spans, _ in found.values() for span in spans]
    drawn = {id(span) for span in nlargest(_DRAWN, spans, key=lambda span: (span.error is not None, _length(span)))}
    return {"stages": [_stage(stage, spans, drawn, cut) for stage, (spans, cut) in found.items() if spans]}


def _read(run: str, stage: str) -> tuple[list[Span], bool]:
    """Return the spans in a stage's file, and whether its beginning is left out. Damaged lines are ignored."""
    with suppress(OSError, ValueError), open_file(home() / "runs", run, FOLDER, f"{stage}.jsonl") as file:
        start = max(0, file.seek(0, 2) - _MOST)
        return read_part(file, start, _MOST)[0], start > 0
    return [], False


def _stage(stage: str, spans: Sequence[Span], drawn: Collection[int], cut: bool) -> dict[str, Any]:
    rows: dict[_Path, list[Span]] = defaultdict(list)
    known = {span.id: span for span in spans}
    for span in spans:
        rows[_path(span, known)].append(span)
    began = {path: min(span.start for span in row) for path, row in rows.items()}

    def order(path: _Path) -> list[tuple[int, str]]:
        above = [path[: depth + 1] for depth in range(len(path))]
        return [(began.get(part, 0), part[-1]) for part in above]

    return {
        "stage": stage,
        "trace": spans[-1].trace[:_CHARACTERS],
        "rows": list(filter(None, (_row(path, rows[path], drawn) for path in sorted(rows, key=order)))),
        "left_out": sum(id(span) not in drawn for span in spans),
        "cut": cut,
    }


def _path(span: Span, known: Mapping[str, Span]) -> _Path:
    """Return where a span belongs. One whose parent was not written, as after a kill, is an outermost one."""
    names, above = [span.name], known.get(span.parent)
    while above is not None and len(names) < _DEEPEST:  # spans of a hostile file may be part of one another
        names.append(above.name)
        above = known.get(above.parent)
    return tuple(reversed(names))


def _row(path: _Path, spans: Sequence[Span], drawn: Collection[int]) -> dict[str, Any] | None:
    shown = [span for span in spans if id(span) in drawn]
    if not shown:
        return None
    return {
        "name": path[-1][:_CHARACTERS],
        "depth": len(path) - 1,
        "count": len(spans),
        "seconds": sum(map(_seconds, spans)),
        "spans": [_shown(span) for span in sorted(shown, key=lambda span: span.start)],
    }


def _shown(span: Span) -> dict[str, Any]:
    which_try = {"try": span.resource["try"]} if "try" in span.resource else {}
    known = {key: value for key, value in {**which_try, **span.attributes}.items() if key != "seconds"}
    return {
        "start": span.start / 1e9,
        "end": span.end / 1e9,
        "seconds": _seconds(span),
        "error": None if span.error is None else span.error[:_CHARACTERS],
        "attributes": {
            key[:_CHARACTERS]: value[:_CHARACTERS] if isinstance(value, str) else value
            for key, value in islice(known.items(), _ATTRIBUTES)
        },
    }


def _seconds(span: Span) -> float:
    """Return how long a span took. A phase of a training, which is repeated, says so itself."""
    told = span.attributes.get("seconds")
    return told if isinstance(told, float) and 0 <= told <= _length(span) else _length(span)


def _length(span: Span) -> float:
    return (span.end - span.start) / 1e9
