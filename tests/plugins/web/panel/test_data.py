"""The page of the data: versions of datasets and windows of streams, as runs have left them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from include.artifacts import write_json
from include.datasets import Dataset
from include.runs import Run
from tests.airflow_home import login
from tests.plugins.web.panel.conftest import Ask
from tests.plugins.web.panel.runs import HOSTILE, change_record, make_stages

NOTHING: dict[str, Any] = {"datasets": [], "streams": []}


def figures(length: float) -> list[dict[str, Any]]:
    """Figures of drift, the second of which may be above its limit."""
    return [
        {"name": "label balance", "measure": "total variation distance", "value": 0.0023,
         "field": "dataset.max_label_drift", "limit": 0.2, "passed": True},
        {"name": "length", "measure": "Kolmogorov-Smirnov, in words", "value": length,
         "field": "dataset.max_length_drift", "limit": 0.25, "passed": length <= 0.25},
    ]  # fmt: skip


def ingest(
    home: Path,
    run_id: str,
    at: float,
    version: str = "",
    length: float = 0.1,
    refusal: str = "",
    malformed: dict[str, str] | None = None,
    dataset: str = "reviews",
    dag_id: str = "retrain",
) -> str:
    """Let a run look for new rows, and return the name of its folder.

    Args:
        home: the home.
        run_id: the run.
        at: when it has looked, in seconds since 1970.
        version: the version that it makes; "" if it finds no rows or refuses them.
        length: the drift of their lengths, of which 0.25 is accepted.
        refusal: why it refuses the rows; "" if it does not.
        malformed: files that cannot be read, and why.
        dataset: the name of the dataset.
        dag_id: the Dag of the run.
    """
    counts = dict.fromkeys(("added", "duplicate", "known", "conflict", "in_dev", "in_test", "unusable"), 0)
    result: dict[str, Any] = {
        "new": bool(version), "dataset": dataset, "version": version or "0" * 16, "parent": "0" * 16,
        "counts": counts | {"added": 2 if version or refusal else 0, "known": 1}, "drift": {"length": length},
        "refused": malformed or {}, "warnings": [], "files": {"drift": "drift.json", "quarantine": "quarantine.jsonl"},
    }  # fmt: skip
    found = {"ingest": result | ({"rows": {"train": 80, "dev": 10, "test": 9}} if version else {})}
    if not refusal:
        found["validate"] = {"files": {"data_docs": "data_docs/index.html"}}
    drift = {"rows": 2, "figures": figures(length) if version or refusal else []}
    return make_stages(home, dag_id, run_id, at, found, {"drift.json": json.dumps(drift)}, refusal)


def close_window(home: Path, first: int, run: str, at: float, length: float = 0.1, stream: str = "mails") -> Path:
    """Let a run close a window of a stream."""
    file = home / "streams" / stream / "windows" / f"{first}-{first + 1}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    window = {
        "first": first, "last": first + 1, "model_version": "spark-bert-reviews version 1", "rows": 1000,
        "labels": {"0": 0.4, HOSTILE: 0.6}, "confidence": 0.9, "figures": figures(length), "passed": length <= 0.25,
        "reasons": [], "run": run,
    }  # fmt: skip
    write_json(file, window)
    os.utime(file, (at, at))
    return file


def test_a_dataset_has_versions_with_their_drift(ask: Ask, home: Path) -> None:
    first = ingest(home, "week-1", 1e9, "a" * 16)
    second = ingest(home, "week-2", 1e9 + 1000, "b" * 16, length=0.3)
    refused = ingest(home, "week-3", 1e9 + 2000, length=0.9, refusal="the new rows are refused: the drift of length")
    malformed = ingest(home, "week-4", 1e9 + 3000, malformed={"broken.tsv": "no column label"})
    ingest(home, "week-5", 1e9 + 4000)
    Dataset(home, "reviews").accept("a" * 16, "")
    Dataset(home, "reviews").accept("b" * 16, "a" * 16)
    answer = ask("data")
    (dataset,) = answer["datasets"]
    assert (dataset["dataset"], dataset["current"], dataset["looked"]) == ("reviews", "b" * 16, 1e9 + 4000)
    versions = dataset["versions"]
    assert [each["run"] for each in versions] == [malformed, refused, second, first] and dataset["total"] == 4
    assert (versions[0]["new"], versions[0]["refused"], versions[0]["figures"]) == (
        False, {"broken.tsv": "no column label"}, []
    )  # fmt: skip
    assert versions[1]["refusal"].startswith("the new rows are refused") and versions[1]["data_docs"] == ""
    assert [figure["passed"] for figure in versions[1]["figures"]] == [True, False]
    assert (versions[2]["version"], versions[2]["counts"]["added"], versions[2]["rows"]["train"]) == ("b" * 16, 2, 80)
    assert (versions[2]["figures"][1]["value"], versions[2]["figures"][1]["limit"]) == (0.3, 0.25)
    assert versions[2]["data_docs"].endswith("/runs/retrain/week-2/validate/data_docs/index.html")
    assert answer["streams"] == [] and ask("data", dataset="other") == NOTHING == ask("data", login(None))


def test_a_stream_has_windows_with_their_drift(ask: Ask, home: Path) -> None:
    run = make_stages(home, "stream", "one", 1e9, {"stream": {"stream": "mails"}})
    for first in range(0, 40, 2):
        close_window(home, first, run, 1e9 + first, 0.1 if first else 0.9)
    close_window(home, 40, "gone", 1e9 + 40, 0.4)
    (home / "streams/mails/windows/1-2.json.part").write_text("{")
    (stream,) = ask("data")["streams"]
    newest, before = stream["windows"][:2]
    assert (stream["stream"], stream["total"], len(stream["windows"])) == ("mails", 21, 12)
    assert (newest["first"], newest["time"], newest["made_by"]) == (40, 1e9 + 40, None)
    assert newest["figures"][1]["passed"] is False and newest["labels"][HOSTILE] == 0.6
    assert before["made_by"] == {"run": run, "dag_id": "stream", "run_id": "one"}
    (stream,) = ask("data", stream="mails")["streams"]
    assert len(stream["windows"]) == 21 and stream["windows"][-1]["figures"][1]["value"] == 0.9


@pytest.mark.usefixtures("only_retrain")
def test_data_of_other_dags_are_not_shown(ask: Ask, home: Path) -> None:
    own = ingest(home, "week-1", 1e9, "a" * 16)
    ingest(home, "other", 1e9, "b" * 16, dag_id="other", dataset="secret")
    close_window(home, 0, own, 1e9)
    close_window(home, 2, "gone", 1e9)  # its Dag is not known, so only those see it who may read all
    close_window(home, 0, make_stages(home, "stream", "one", 1e9, {"stream": {}}), 1e9, stream="secret")
    answer = ask("data")
    assert [dataset["dataset"] for dataset in answer["datasets"]] == ["reviews"] and "secret" not in json.dumps(answer)
    (stream,) = answer["streams"]
    assert [window["first"] for window in stream["windows"]] == [0]


def test_hostile_names_and_damaged_files_hide_nothing(ask: Ask, home: Path) -> None:
    ingest(home, "good", 1e9, "a" * 16, malformed={HOSTILE: HOSTILE}, dataset="../runs")
    for number, damage in enumerate(([], {}, {"new": 1, "dataset": []}, {"new": True, "dataset": "x", "version": 7})):
        run = Run(home / "runs" / ingest(home, f"bad-{number}", 1e9, "b" * 16))
        stages = run.record()["stages"]
        stages["ingest"]["result"] = damage
        change_record(run, stages=stages)
    run = Run(home / "runs" / ingest(home, "gone", 1e9 - 1000, "c" * 16))
    (home / run.record()["stages"]["ingest"]["path"] / "drift.json").write_text('{"figures": [7]}')
    for name, text in {"2-3.json": "{", "4-5.json": "[]", "6-7.json": '{"first": 6, "last": 7}'}.items():
        close_window(home, 0, "gone", 1e9, stream=HOSTILE.replace("/", "")).with_name(name).write_text(text)
    (home / "streams/link").symlink_to(home / "streams" / HOSTILE.replace("/", ""))
    os.makedirs(os.fsencode(home / "streams") + b"/\xff/windows")  # noqa: PTH103 no text has this name
    answer = ask("data")
    hostile, reviews = answer["datasets"]
    assert (hostile["dataset"], hostile["current"]) == ("../runs", "")
    assert hostile["versions"][0]["refused"] == {HOSTILE: HOSTILE}
    assert [(each["version"], each["figures"]) for each in reviews["versions"]] == [("c" * 16, [])]
    (stream,) = answer["streams"]
    assert [window["first"] for window in stream["windows"]] == [0]
