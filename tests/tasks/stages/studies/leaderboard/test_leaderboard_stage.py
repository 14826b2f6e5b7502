"""The leaderboard of runs with real records and artifacts, whose figures are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.artifacts import Manifest, artifact_key, write_json
from include.named_experiments import load
from include.runs import Run
from include.stages import STAGES, BadInput
from tasks.reporting.papers import CONTRADICTIONS
from tasks.runner import run_stage

LABELS = np.arange(100) % 2


def finished(home: Path, name: str, wrong: int, *overrides: str, **predict: Any) -> Run:
    """A run on SST-2 that has so many of 100 dev rows wrong, the first ones."""
    run = Run(home / "runs" / name)
    experiment = load("sst2", ["data.path=glue", *overrides])
    accuracy = 1 - wrong / 100
    summary = {"metric": "accuracy", "metrics": {"accuracy": accuracy}, "interval": [0.1, 0.9], "rows": 100}
    training = {"seconds": 50.0 + wrong, "rows_per_second": 1000.0, "memory": 2 * 10**9}
    predicted = np.where(np.arange(100) < wrong, 1 - LABELS, LABELS)
    made: dict[str, dict[str, Any]] = {
        "validate": {}, "preprocess": {}, "pretrain": {},
        "train": {"training.json": training}, "evaluate": {"metrics.json": summary},
    }  # fmt: skip
    for stage, files in {**made, **({"predict": {}} if predict else {})}.items():
        part = STAGES[stage].part(experiment)
        mark = "" if stage in ("validate", "preprocess") else name
        key = artifact_key(1, STAGES[stage].key_part(experiment), {}, mark)
        artifact = run.store.find(stage, key)
        if artifact is None:
            with run.store.writing(stage, key) as folder:
                for file, values in files.items():
                    write_json(folder / file, values)
                if stage == "train":
                    (folder / "model").mkdir()
                    (folder / "model" / "model.safetensors").write_bytes(b"x" * 1_000_000)
                if stage == "evaluate":
                    table = pa.table({"row": np.arange(100), "label": LABELS, "prediction": predicted})
                    pq.write_table(table, folder / "predictions.parquet")
                artifact = run.store.commit(folder, Manifest(stage, key, 1, part, {}, "", "", dict(predict)))
        run.add(artifact, experiment)
    return run


def leaderboard(home: Path) -> tuple[dict[str, Any], str, str]:
    artifact = run_stage("leaderboard", load("movies"), Run(home / "runs" / "board"))
    files = [artifact.path / f"leaderboard.{kind}" for kind in ("json", "md", "html")]
    summary, markdown, html = (file.read_text(encoding="utf-8") for file in files)
    return json.loads(summary), markdown, html


def test_models_are_ranked_with_intervals_over_seeds_and_tests_against_the_best(tmp_path: Path) -> None:
    for seed, wrong in ((1, 10), (2, 8), (3, 9)):
        finished(tmp_path, f"mini-{seed}", wrong, f"training.seed={seed}")
        finished(tmp_path, f"tfidf-{seed}", 20, "model.kind=tfidf", f"training.seed={seed}", rows_per_second=500.0)
    finished(tmp_path, "cnn", 12, "model.kind=textcnn")
    summary, markdown, html = leaderboard(tmp_path)
    (task,) = summary["tasks"]
    assert [row["name"] for row in task["rows"]] == ["all-MiniLM-L6-v2", "textcnn", "tfidf"]
    best, cnn, tfidf = task["rows"]
    assert (best["seeds"], best["p"], best["labeling_rows_per_second"]) == ([1, 2, 3], None, None)
    assert best["metric"] == pytest.approx(0.91)
    assert best["interval"] == pytest.approx([0.91 - 0.02484, 0.91 + 0.02484], abs=1e-4)
    assert (cnn["interval"], cnn["interval_over"], cnn["p"]) == ([0.1, 0.9], "dev rows", 0.5)
    assert (tfidf["interval"], tfidf["interval_over"]) == ([0.1, 0.9], "dev rows")  # three seeds, one result
    assert (tfidf["labeling_rows_per_second"], tfidf["size"]) == (500, 1_000_000)
    assert tfidf["p"] == pytest.approx(2 / 2**10)  # the first seed of the best has ten rows right that this one lacks
    for text in (markdown, html):
        assert "0.8852 to 0.9348 over seeds" in text and "1 MB" in text and CONTRADICTIONS[0] in text
    assert "| table 1 | MLlib | 0.859 | 0.8000 | tfidf |" in markdown
    assert "| table 4 | ALBERT-base | 0.915 | — | — |" in markdown


def test_the_papers_speeds_contradict_one_another() -> None:
    assert CONTRADICTIONS[0].endswith("are 122 rows/s, not 1,842.")
    assert "4.3 minutes for an epoch, not 58" in CONTRADICTIONS[1] and "efficiency of 0.79" in CONTRADICTIONS[2]


def test_settings_distinguish_rows_of_the_same_model(tmp_path: Path) -> None:
    finished(tmp_path, "short", 10, "training.epochs=1")
    finished(tmp_path, "usual", 9)
    finished(tmp_path, "again", 9)
    summary, _, _ = leaderboard(tmp_path)
    rows = summary["tasks"][0]["rows"]
    assert [row["name"] for row in rows] == [
        "all-MiniLM-L6-v2 (training.epochs default)", "all-MiniLM-L6-v2 (training.epochs 1.0)",
    ]  # fmt: skip
    assert rows[0]["runs"] == ["usual"]


def test_models_that_began_with_other_weights_are_not_the_same(tmp_path: Path) -> None:
    finished(tmp_path, "one", 10, "model.name=google-bert/bert-base-uncased")
    finished(tmp_path, "two", 11, "model.name=/srv/bert-base-uncased")
    finished(tmp_path, "frozen", 9, "model.name=google-bert/bert-base-uncased", "model.kind=frozen")
    finished(tmp_path, "pretrained", 12, "model.name=/srv/bert-base-uncased", "pretraining.text=reviews.txt")
    task = leaderboard(tmp_path)[0]["tasks"][0]
    assert [row["name"] for row in task["rows"]] == [
        "google-bert/bert-base-uncased, frozen",
        "google-bert/bert-base-uncased",
        "/srv/bert-base-uncased (pretraining.text default)",
        "/srv/bert-base-uncased (pretraining.text reviews.txt)",
    ]
    ours = {claim["name"]: claim["ours"] for claim in task["papers"]}
    assert ours["BERT-base"]["runs"] == ["one"] and ours["DistilBERT"] is None


def test_what_cannot_be_compared_is_left_out(tmp_path: Path) -> None:
    for epochs, name in enumerate(("older", "oldest", "old")):
        finished(tmp_path, name, 1, f"training.epochs={epochs + 3}", "validation.max_quarantine=0.5")
    for seed, name in enumerate(("one", "two")):
        finished(tmp_path, name, 10, f"training.seed={seed}")
    finished(tmp_path, "again", 1, "validation.max_quarantine=0.5")  # its data are no newer for it
    write_json(finished(tmp_path, "arm", 1).folder / "arm.json", {})
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "run.json").write_text("{")
    summary, markdown, _ = leaderboard(tmp_path)
    assert [row["runs"] for row in summary["tasks"][0]["rows"]] == [["one", "two"]]
    first, *others = summary["warnings"]
    assert "the run broken is left out" in first and "is damaged" in first
    assert [line.split()[2] for line in others] == ["again", "old", "older", "oldest"]
    assert "are older than those that other runs of SST-2 have" in others[0] and "## Left out" in markdown


def test_all_runs_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, record = list[Path](), Run.record

    def recorded(run: Run) -> dict[str, Any]:
        read.append(run.folder)
        return record(run)

    monkeypatch.setattr(Run, "record", recorded)
    write_json(finished(tmp_path, "arm", 1).folder / "arm.json", {})
    finished(tmp_path, "one", 10)
    read.clear()
    leaderboard(tmp_path)
    assert read.count(tmp_path / "runs" / "arm") == 1


def test_a_home_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no run below .* is evaluated: run the Dag leaderboard or finetune first"):
        leaderboard(tmp_path)
