"""The data over time: the versions of the datasets, and the windows of the streams, each with its drift."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from pydantic import BaseModel

from include.folders import open_file, open_folder
from include.text import is_unwritable
from spark_bert.deployment.places import home
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import read_json, read_record
from spark_bert.web.panel.results import Source, read_artifact, read_file, result_of

#: How many versions or windows are shown of each dataset or stream, and how many if a reader asks for it alone.
SHORT, LONG = 12, 200
_WINDOW = re.compile(r"([0-9]{1,18})-[0-9]{1,18}\.json")


class _Figure(BaseModel):
    """A figure of drift and the largest value that is accepted; see tasks/scoring/drift.py."""

    name: str
    measure: str = ""
    value: float
    limit: float
    passed: bool


class _Drift(BaseModel):
    """The content of drift.json."""

    figures: list[_Figure] = []


class _Ingest(BaseModel):
    """The result of ingest."""

    new: bool
    dataset: str
    version: str
    counts: dict[str, int] = {}
    rows: dict[str, int] = {}
    refused: dict[str, str] = {}  # malformed files, and why


class _Window(BaseModel):
    """A window of a stream; see tasks/scoring/drift_windows.py."""

    first: int
    last: int
    model_version: str = ""
    rows: int
    labels: dict[str, float] = {}
    scores: dict[str, float] = {}
    confidence: float | None = None
    figures: list[_Figure] = []
    run: str = ""


def describe(rows: Collection[Row], all_dags: bool, dataset: str = "", stream: str = "") -> dict[str, Any]:
    """Return the datasets and the streams, as JSON.

    Args:
        rows: the runs that the reader may see.
        all_dags: whether the reader may read all Dags, and so see what removed runs have left.
        dataset: the only dataset that the reader wants to see, with more of its versions.
        stream: the same for a stream. If one of both is given, nothing of the other kind is returned.
    """
    return {
        "datasets": [] if stream else list(_datasets(rows, dataset)),
        "streams": [] if dataset else list(_streams({row.run: row for row in rows}, all_dags, stream)),
    }


def _datasets(rows: Iterable[Row], chosen: str) -> Iterator[dict[str, Any]]:
    """Yield the datasets, those with the newest versions first, and their versions, the newest first."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in sorted(_ingests(rows), key=lambda ingest: -ingest["time"]):
        found[one["dataset"]].append(one)
    for name, ingests in found.items():
        if chosen in ("", name):
            told = [one for one in ingests if one["new"] or one["refusal"] or one["refused"]]
            yield {
                "dataset": name,
                "current": _current(name),
                "looked": ingests[0]["time"],
                "versions": told[: LONG if chosen else SHORT],
                "total": len(told),
            }


def _current(dataset: str) -> str:
    """Return the last version of a dataset; "" if it is not known."""
    listed = read_json(partial(open_file, home() / "datasets", dataset, "versions.json")).get("versions")
    return str(listed[0]) if isinstance(listed, list) and listed else ""


def _ingests(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    for row in rows:
        found = _ingest(str(home()), Source.of(row)) if "ingest" in row.stages else None
        if found is not None:
            yield found


@lru_cache(maxsize=1 << 12)
def _ingest(root: str, source: Source) -> dict[str, Any] | None:
    """Return what ingest has made in a run of the home `root`, as JSON. "refusal" is why the new rows are refused."""
    record = read_record(source.run)
    result = result_of(source, record, "ingest")
    found = result.read(_Ingest) if result else None
    if result is None or found is None:
        return None
    drift = read_artifact("ingest", result.key, "drift.json", _Drift) or _Drift()
    validated = result_of(source, record, "validate")
    return {
        **found.model_dump(),
        **source.as_json(),
        "time": result.time,
        "refusal": result.message if result.refused else "",
        "figures": [figure.model_dump() for figure in drift.figures],
        "data_docs": validated.href("data_docs") if validated else "",
    }


def _streams(runs: Mapping[str, Row], all_dags: bool, chosen: str) -> Iterator[dict[str, Any]]:
    """Yield the streams and their windows, the newest first."""
    for stream in _names():
        if chosen not in ("", stream):
            continue
        files = sorted(filter(_WINDOW.fullmatch, _names(stream, "windows")), key=_first, reverse=True)
        windows = (_window(stream, file, runs) for file in files[: LONG if chosen else SHORT])
        told = [window for window in windows if window and (window["made_by"] or all_dags)]
        if told:
            yield {"stream": stream, "windows": told, "total": len(files)}


def _names(*folders: str) -> list[str]:
    """Return what lies in streams/ or a folder below it; nothing if that is missing."""
    with suppress(OSError), open_folder(home() / "streams", *folders) as folder:
        return sorted(name for name in os.listdir(folder) if not is_unwritable(name))  # noqa: PTH208 a descriptor
    return []


def _first(file: str) -> int:
    """Return the number of the first batch of a window."""
    return int(file.partition("-")[0])


def _window(stream: str, file: str, runs: Mapping[str, Row]) -> dict[str, Any] | None:
    """Return a window as JSON, with the run that has closed it if that is there; None if the file is damaged."""
    found = read_file(partial(open_file, home() / "streams", stream, "windows", file), _Window)
    if found is None:
        return None
    row = runs.get(found[0].run)
    return {**found[0].model_dump(), "time": found[1], "made_by": Source.of(row).as_json() if row else None}
