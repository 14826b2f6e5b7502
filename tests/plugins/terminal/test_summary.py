"""What `make run` says of a run: the line of each stage, and the summary at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from include.artifacts import write_json
from include.runs import Run
from spark_bert.terminal.summary import files, outcome, summary

VALIDATED: dict[str, Any] = {
    "files": {"data_docs": "data_docs/index.html"}, "rows": {"train": 1200, "dev": 100},
    "quarantined": 2, "overlap_removed": 3, "warnings": ["train: 5 of 1,200 rows share their text", "dev: odd"],
}  # fmt: skip
TRAINED = {"rows_per_second": 157.4, "seconds": 51.2, "ranks": 1, "threads": 2, "device": "cpu", "precision": "bf16"}
CHECKS: list[dict[str, Any]] = [
    {"metric": "accuracy", "slice": "", "value": 0.9, "threshold": 0.85, "baseline": 0.5625, "interval": [0.858, 0.92]},
    {"metric": "f1", "slice": "length:long", "value": None, "threshold": 0.7, "baseline": None, "interval": None},
    {
        "metric": "calibration_error", "slice": "", "value": 0.03, "threshold": 0.05, "baseline": None,
        "interval": None, "bound": "at most",
    },
]  # fmt: skip
GATE = {"files": {"verdict": "verdict.html"}, "checks": CHECKS, "passed": True}
PACKAGED = {
    "served": "onnx",
    "predicts": "torch",
    "forms": [
        {"name": "torch", "offered": True, "speeds": {"one_thread": {"times_torch": 1.0}}},
        {"name": "onnx", "offered": True, "speeds": {"many_clients": {"times_torch": 1.5}}},
        {"name": "bf16", "offered": False},
    ],
}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose folder is there."""
    run = Run(tmp_path / "runs" / "one")
    run.folder.mkdir(parents=True)
    return run


def said(run: Run, **stages: dict[str, Any]) -> list[str]:
    """The summary's lines for a run with these stages, without the blank line and the one of the run's folder."""
    write_run(run, {"task": "movie-reviews"}, stages)
    blank, first, *lines = summary(run).splitlines()
    assert (blank, first) == ("", f"run         {run.folder}")
    return lines


def write_run(run: Run, data: dict[str, Any], stages: dict[str, Any]) -> None:
    write_json(run.file, {"run": "one", "experiment": {"data": data}, "stages": stages})


def done(result: dict[str, Any]) -> dict[str, Any]:
    """The record of a stage that ended well."""
    return {"key": "1", "exit_code": 0, "message": "", "result": result}


def test_every_fact_has_a_line(run: Run) -> None:
    lines = said(run, validate=done(VALIDATED), train=done(TRAINED), gate=done(GATE))
    assert lines == [
        "data        movie-reviews: 1,200 train, 100 dev rows; 2 set aside, 3 removed as overlap",
        "training    157 rows per second on 1 rank x 2 threads (cpu, bf16)",
        "metrics     accuracy 0.9000, 95 % interval 0.858 to 0.920, threshold 0.85, a constant answer reaches 0.5625",
        "            f1 on length:long is undefined, threshold 0.7",
        "            calibration_error 0.0300, threshold at most 0.05",
        "verdict     passed",
        "warnings    train: 5 of 1,200 rows share their text",
        "            dev: odd",
        f"model       {run.store.root}/train/1/model",
        f"open        Data Docs               {run.store.root}/validate/1/data_docs/index.html",
        f"            Verdict                 {run.store.root}/gate/1/verdict.html",
    ]


def test_a_model_is_compared_with_its_teacher(run: Run) -> None:
    about = {"name": "large", "metric": "accuracy", "model": 0.9, "teacher": None, "interval": None}
    evaluated = {"teacher": {**about, "rows_per_second": {"times": 3.456}}}
    assert said(run, evaluate=done(evaluated)) == [
        "teacher     accuracy 0.9000, that of large undefined; 3.46 times as many rows per second"
    ]
    evaluated["teacher"] |= {"teacher": 0.91, "interval": [-0.025, 0.005]}
    between = "95 % interval of the difference -0.0250 to 0.0050"
    assert f"that of large 0.9100, {between}; 3.46 times" in said(run, evaluate=done(evaluated))[0]


def test_what_was_found_out_about_labels_is_listed(run: Run) -> None:
    stages = {"validate": done(VALIDATED)}
    write_run(run, {"task": "classification", "labels": ["no", "yes"], "score_range": None}, stages)
    assert "            labels no, yes\n" in summary(run)
    write_run(run, {"task": "regression", "labels": [], "score_range": [0.5, 5]}, stages)
    assert "            scores from 0.5 to 5\n" in summary(run)


def test_predictions_are_to_be_opened_as_csv_and_parquet(run: Run) -> None:
    written = {"predictions": "predictions.csv", "parquet": "predictions.parquet"}
    folder = run.store.path("predict", "1")
    assert said(run, predict=done({"files": written, "rows": 989, "rows_per_second": 300.0})) == [
        f"open        Predictions             {folder}/predictions.csv",
        f"            Predictions (Parquet)   {folder}/predictions.parquet",
    ]


def test_the_form_of_the_predictions_is_named(run: Run) -> None:
    assert "predicted   torch-fp32" in said(run, predict=done({"form": "torch-fp32"}))
    (line,) = said(run, predict=done({"form": "openvino-bf16"}))
    assert line.startswith("predicted   with openvino-bf16, whose answers to near-ties may differ from transformers'")
    assert said(run, predict=done({"rows": 0})) == []


def trained(run: Run, kind: str, accuracy: float, seconds: float, data: str = "a") -> dict[str, Any]:
    """A run's record of an evaluated model."""
    results: dict[str, Any] = {
        "preprocess": {"rows": {"dev": 100}}, "evaluate": {"metrics": {"accuracy": accuracy}},
        "train": {**TRAINED, "seconds": seconds},
    }  # fmt: skip
    stages = {name: done(result) for name, result in results.items()}
    stages["validate"] = {"key": data, "exit_code": 0, "message": ""}
    experiment = {"data": {"task": "movie-reviews"}, "model": {"kind": kind}}
    run.folder.mkdir(parents=True, exist_ok=True)
    write_json(run.file, {"run": run.folder.name, "experiment": experiment, "stages": stages})
    return stages


@pytest.mark.parametrize(
    ("kind", "accuracy", "data", "told"),
    [
        ("tfidf", 0.8, "a", True),
        ("tfidf", 0.7, "a", False),
        ("tfidf", 0.8, "b", False),
        ("encoder", 0.9, "a", False),
    ],
)
def test_a_simpler_model_that_is_better_is_named(run: Run, kind: str, accuracy: float, data: str, told: bool) -> None:
    runs = run.folder.parent
    trained(Run(runs / "other"), kind, accuracy, 73, data)
    trained(Run(runs / "worse"), "textcnn", 0.77, 50, data)
    (runs / "broken").mkdir()
    (runs / "broken" / "run.json").write_text("{")
    trained(run, "encoder", 0.79, 1200)
    lines = [line for line in summary(run).splitlines() if line.startswith("simpler")]
    line = (
        "simpler     tfidf reaches accuracy 0.8000 after 73 s of training (run other), this model 0.7900 after 1,200 s"
    )
    assert lines == ([line] if told else [])


def test_a_failed_gate_keeps_its_numbers(run: Run) -> None:
    failed = {"key": "1", "exit_code": 3, "message": "not good enough", "result": {**GATE, "passed": False}}
    lines = said(run, gate=failed)
    assert "verdict     not passed" in lines and "failed      gate: not good enough" in lines
    assert lines[0].startswith("metrics     accuracy 0.9000")


def test_a_stage_that_recorded_nothing_tells_why(run: Run) -> None:
    broken = {"key": "", "exit_code": 75, "message": "no space left"}
    assert said(run, validate=broken, predict=broken) == [
        "failed      validate: no space left",
        "            predict: no space left",
    ]
    assert files(run) == {}


@pytest.mark.parametrize(
    ("stage", "entry", "line"),
    [
        ("train", done(TRAINED), "157 rows per second on 1 rank x 2 threads (cpu, bf16)"),
        (
            "train",
            done({**TRAINED, "layout": "as many as have written the checkpoint"}),
            "157 rows per second on 1 rank x 2 threads (cpu, bf16); as many as have written the checkpoint",
        ),
        (
            "preprocess",
            done({"rows": {"train": 9}, "mean_length": {"train": 26.6}}),
            "9 train rows; 27 tokens per row of train",
        ),
        (
            "preprocess",
            done({"rows": {"train": 9}, "truncated": {"train": 4}, "mean_length": {"train": 26.6}}),
            "9 train rows; 27 tokens per row of train, 4 rows of train cut off",
        ),
        (
            "preprocess",
            done({"rows": {"train": 9}, "windows": {"train": 1200}, "mean_length": {"train": 101.6}}),
            "9 train rows; 1,200 windows of train, 102 tokens per window",
        ),
        ("train", done(TRAINED) | {"reused": True}, "found: 157 rows per second on 1 rank x 2 threads (cpu, bf16)"),
        ("challenge", done({}), "done"),
        (
            "pretrain",
            done({"pretrained": True, "perplexity": None, "rows_per_second": 12.4}),
            "perplexity undefined, 12 blocks per second",
        ),
        ("pretrain", done({"pretrained": False}), "no unlabeled text, so nothing to do"),
        ("teach", done({"teacher": ""}), "no teacher, so nothing to do"),
        (
            "teach",
            done({"teacher": "large", "form": "openvino-bf16", "rows": {"train": 67349, "dev": 872}}),
            "67,349 train, 872 dev rows from large (openvino-bf16)",
        ),
        (
            "package",
            done(PACKAGED),
            "torch predicts (1.00 times PyTorch), onnx serves (1.50 times); 2 of 3 forms offered",
        ),
        ("predict", done({"rows": 989, "rows_per_second": 1842.4}), "989 rows, 1,842 rows per second"),
        ("predict", done({"rows": 0, "files": {}}), "nothing, because there is no test file"),
        ("export", done({"rows": 0, "files": {}}), "nothing, because there is no test file"),
        ("train", {"key": "", "exit_code": 75, "message": "no space left"}, "no space left"),
    ],
)
def test_a_stage_has_one_line(stage: str, entry: dict[str, Any], line: str) -> None:
    assert outcome(stage, entry) == line
