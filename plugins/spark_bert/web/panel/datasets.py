"""The data over time: the versions of the datasets, and the windows of the streams, each with its drift."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from include.text import is_unwritable
from spark_bert.deployment.places import home
from spark_bert.web.panel.addresses import May, Readable
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import fit, list_names, read_artifact, read_json, read_record

SHORT, LONG = 12, 200  # versions or windows that are shown of each dataset or stream, and of one alone
_WINDOW = re.compile(r"[0-9]{1,18}-[0-9]{1,18}\.json")


class _Figure(BaseModel):
    """A figure of drift and the largest value that is accepted."""

    name: str
    measure: str = ""
    value: float
    limit: float
    passed: bool


class _Drift(BaseModel):
    figures: list[_Figure] = []


class _Ingest(BaseModel):
    new: bool
    dataset: str
    version: str
    counts: dict[str, int] = {}
    rows: dict[str, int] = {}
    refused: dict[str, str] = {}  # malformed files, and why


class _Window(BaseModel):
    first: int
    last: int
    model_version: str = ""
    rows: int
    labels: dict[str, float] = {}
    scores: dict[str, float] = {}
    confidence: float | None = None
    figures: list[_Figure] = []
    run: str = ""


def describe(rows: Readable, may: May, dataset: str = "", stream: str = "") -> dict[str, Any]:
    """Return the datasets and the streams; if one is named, only that one, with more of its versions or windows."""
    return {
        "datasets": [] if stream else list(_datasets(rows, dataset)),
        "streams": [] if dataset else list(_streams({row.run: row for row in rows}, may(""), stream)),
    }


def _datasets(rows: Iterable[Row], chosen: str) -> Iterator[dict[str, Any]]:
    """Yield the datasets, those with the newest versions first, and their versions, the newest first."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    ingests = filter(None, (_ingest(str(home()), row) for row in rows if "ingest" in row.stages))
    for one in sorted(ingests, key=lambda ingest: -ingest["time"]):
        found[one["dataset"]].append(one)
    for name, of_dataset in found.items():
        if chosen in ("", name):
            told = [one for one in of_dataset if one["new"] or one["refusal"] or one["refused"]]
            listed = read_json(home() / "datasets", name, "versions.json")[0].get("versions")
            yield {
                "dataset": name,
                "current": str(listed[0]) if isinstance(listed, list) and listed else "",
                "looked": of_dataset[0]["time"],
                "versions": told[: LONG if chosen else SHORT],
                "total": len(told),
            }


@lru_cache(maxsize=1 << 12)
def _ingest(root: str, row: Row) -> dict[str, Any] | None:
    """Return what ingest has made in a run of the home `root`, as JSON. "refusal" is why the new rows are refused."""
    stages = read_record(row.run).stages
    entry, validated = stages.get("ingest"), stages.get("validate")
    found = fit(_Ingest, entry.result) if entry and entry.made else None
    if entry is None or found is None:
        return None
    drift = fit(_Drift, read_artifact("ingest", entry.key, "drift.json")) or _Drift()
    return {
        **found.model_dump(),
        **row.source,
        "time": entry.ended or row.changed,
        "refusal": entry.message if entry.exit_code else "",
        "figures": [figure.model_dump() for figure in drift.figures],
        "data_docs": row.href("validate", validated, "data_docs") if validated and validated.made else "",
    }


def _streams(runs: Mapping[str, Row], all_dags: bool, chosen: str) -> Iterator[dict[str, Any]]:
    """Yield the streams and their windows, the newest first; if `all_dags`, also what removed runs have left."""
    for stream in list_names(home() / "streams"):
        if chosen in ("", stream) and not is_unwritable(stream):
            files = list_windows(stream)
            windows = (_window(stream, file, runs) for file in files[: LONG if chosen else SHORT])
            told = [window for window in windows if window and (window["made_by"] or all_dags)]
            if told:
                yield {"stream": stream, "windows": told, "total": len(files)}


def list_windows(stream: str) -> list[str]:
    """Return the names of the files of a stream's windows, the newest first."""
    files = filter(_WINDOW.fullmatch, list_names(home() / "streams", stream, "windows"))
    return sorted(files, key=lambda file: int(file.partition("-")[0]), reverse=True)


def _window(stream: str, file: str, runs: Mapping[str, Row]) -> dict[str, Any] | None:
    """Return a window as JSON, with the run that has closed it if that is there; None if the file is damaged."""
    content, time = read_json(home() / "streams", stream, "windows", file)
    found = fit(_Window, content)
    if found is None:
        return None
    row = runs.get(found.run)
    return {**found.model_dump(), "time": time, "made_by": row.source if row else None}
