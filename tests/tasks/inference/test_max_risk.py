"""prediction.max_risk where rows are labeled: the label is empty where the model abstains, and the reason is there."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.artifacts import Artifact
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput
from tasks.encoder.spec import HeadSpec
from tasks.inference.labeler import answers
from tasks.inference.packaged_model import PackagedModel
from tasks.runner import run_stage
from tasks.scoring.risk import EVIDENCE, Guard, count
from tests.tasks.stages.labeling.score.models import CLASSES, trained
from tests.tasks.stages.labeling.score.test_score_stage import expected, texts
from tests.tasks.stages.pipeline.package.packages import doubt, unchanged_package

RISK = 0.05
ROWS = texts(60)
FORM = "torch-fp32"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """A package whose model is right, as dev says, where it is more confident than for half of the rows."""
    model = trained(tmp_path_factory.mktemp("train") / "model", encoder)
    folder = tmp_path_factory.mktemp("package")
    unchanged_package(folder, model, CLASSES)
    _, chances = expected(model, [(text,) for text in ROWS])
    doubt(folder, float(np.median(chances.max(axis=1))))
    return folder


@pytest.fixture(scope="module")
def guard(package: Path) -> Guard:
    return Guard.read(package, FORM, RISK)


def labeled(stage: str, home: Path, values: dict[str, Any], max_risk: float | None = RISK) -> Artifact:
    part = {"prediction": {} if max_risk is None else {"max_risk": max_risk}}
    return run_stage(stage, build({**part, **values}, "test"), Run(home / "runs/one"))


def table(folder: Path) -> Path:
    (folder / "in").mkdir(parents=True)
    (folder / "in/a.csv").write_text("\n".join(["id,text", *(f"{at},{text}" for at, text in enumerate(ROWS))]) + "\n")
    return folder / "in/a.csv"


def check(rows: list[dict[str, Any]], guard: Guard) -> int:
    """Check that rows have a label or a reason, and return how many have a label."""
    assert guard.least is not None
    for row in rows:
        likely = max(("no", "yes"), key=lambda name: row[f"probability:{name}"])
        if row["probability"] >= guard.least:
            assert row["predicted_label"] == likely and row["prediction"] is not None and row["abstained"] is None
        else:
            assert row["predicted_label"] is None and row["prediction"] is None
            assert row["abstained"].endswith(f"is below {guard.least:.4g}, as max_risk 0.05 requires")
    return sum(row["abstained"] is None for row in rows)


def test_score_leaves_the_label_empty(package: Path, guard: Guard, tmp_path: Path) -> None:
    scoring = {"input": str(table(tmp_path)), "model": str(package)}
    made = labeled("score", tmp_path, {"scoring": scoring})
    result, rows = made.manifest.result, pq.read_table(made.path / "scored.parquet").to_pylist()
    assert 10 < check(rows, guard) == result["answered"] < 50
    assert "max_risk 0.05 is certified from confidence" in result["risk"]
    with (made.path / "scored.csv").open(encoding="utf-8", newline="") as stream:
        cells = list(csv.DictReader(stream))
    assert [(row["predicted_label"], row["abstained"]) for row in cells] == [
        (row["predicted_label"] or "", row["abstained"] or "") for row in rows
    ]
    without = labeled("score", tmp_path, {"scoring": scoring}, None)
    assert "answered" not in without.manifest.result
    plain = pq.read_table(without.path / "scored.parquet")
    assert plain.column_names == [name for name in rows[0] if name != "abstained"]
    labels = zip(plain["predicted_label"].to_pylist(), rows, strict=True)
    assert all(row["predicted_label"] in (None, label) for label, row in labels)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("an old package", "needs .*evidence.json with the form torch-fp32 .*package the model again"),
        ("a model", "needs .*evidence.json with the form torch-fp32"),
        ("a column", "has a column 'Abstained', a name that the predictions need"),
    ],
)
def test_what_cannot_be_done_is_refused(package: Path, tmp_path: Path, what: str, message: str) -> None:
    file, model = table(tmp_path), package
    if what == "an old package":
        model = tmp_path / "old"
        shutil.copytree(package, model)
        (model / EVIDENCE).unlink()
    elif what == "a model":
        model = tmp_path / "model"
        shutil.copytree(package / "model", model)
    else:
        file.write_text("text,Abstained\na film,no\n")
    with pytest.raises(BadInput, match=message):
        labeled("score", tmp_path, {"scoring": {"input": str(file), "model": str(model)}})


@pytest.mark.parametrize(
    ("head", "columns"),
    [
        (HeadSpec("classification", 3, label_names=("a", "b", "c")), ["abstained", "label_set"]),
        (HeadSpec("multilabel", 2, label_names=("a", "b")), ["label_set"]),
        (HeadSpec("regression", 1, score_range=(1.0, 5.0)), ["low", "high"]),
    ],
)
def test_other_kinds_have_sets_or_intervals_in_tables_and_in_the_package(head: HeadSpec, columns: list[str]) -> None:
    random = np.random.default_rng(0)
    logits = random.normal(3, 2, (200, head.outputs)).astype(np.float32)
    plain = answers(head, logits)
    values = plain["prediction"]
    if head.label_names:
        values = np.stack([plain[f"probability:{name}"] for name in head.label_names], axis=1)
    labels = {"classification": random.integers(0, 3, 200), "multilabel": random.integers(0, 2, (200, 2))}
    truth = labels.get(head.kind, plain["prediction"])
    guard = Guard.of(
        head.kind, head.label_names, head.score_range, 0.1, count(head.kind, truth, values, head.score_range)
    )
    found = answers(head, logits, guard)
    assert list(found) == [*plain, *columns]
    model = PackagedModel.__new__(PackagedModel)
    model.kind, model.labels, model.thresholds, model.guard = head.kind, list(head.label_names), [0.5, 0.5], guard
    packaged = model.answers(logits)
    for name in columns:
        assert packaged[name] == pa.array(found[name]).to_pylist()
    if head.kind == "regression":
        assert all(1 <= low <= high <= 5 for low, high in zip(packaged["low"], packaged["high"], strict=True))
    else:
        assert {len(chosen) for chosen in packaged["label_set"]} != {0}
    if "abstained" in columns:  # dev was labeled at random
        assert set(packaged["label"]) == {None} == set(pa.array(found["predicted_label"]).to_pylist())
