"""The whole pipeline as a user runs it, on a slice of the bundled corpus: real text, weights, Spark and Horovod."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from tests.e2e.make_run import SLICE, make_run


def records(home: Path) -> list[dict[str, Any]]:
    """The runs' records, the oldest first."""
    return [
        json.loads(path.read_text())
        for path in sorted(home.glob("runs/*/run.json"), key=lambda path: path.stat().st_mtime)
    ]


def test_a_run_ends_with_model_report_and_submission(home: Path) -> None:
    stages = records(home)[0]["stages"]
    assert list(stages) == [
        "validate",
        "preprocess",
        "pretrain",
        "train",
        "evaluate",
        "gate",
        "predict",
        "export",
        "track",
    ]
    results = {name: entry["result"] for name, entry in stages.items()}
    assert results["evaluate"]["metrics"]["accuracy"] > 0.6
    assert "accuracy" in Path(results["evaluate"]["artifact"], "report.html").read_text()
    assert Path(results["train"]["artifact"], "model/model.safetensors").is_file()
    rows = results["validate"]["rows"]["test"]
    with zipfile.ZipFile(Path(results["export"]["artifact"], "submission.zip")) as submission:
        assert submission.namelist() == ["movie-reviews.tsv"]
        lines = submission.read("movie-reviews.tsv").decode().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == [str(index) for index in range(rows)]


def test_a_run_prints_a_line_for_each_stage_and_the_rest_into_its_log(first_run: tuple[Path, str]) -> None:
    home, output = first_run
    stages = re.findall(r"^(\w+) +[\d:]+ (?:s|min)  ", output, re.MULTILINE)
    assert stages == list(records(home)[0]["stages"])
    (log,) = home.glob("airflow/logs/dag_id=finetune/run_id=make-run-*/log.txt")
    assert f"log         {log}" in output
    assert "INFO tasks.training.metrics_logger: step" in log.read_text()
    assert "INFO" not in output


def test_a_second_run_shares_the_artifacts_and_a_failed_gate_stops_it(home: Path) -> None:
    first = records(home)[0]["stages"]
    code, output = make_run(home, *SLICE[:-1], "gate.accuracy=0.999")
    assert code == 3, output
    assert "verdict     not passed" in output
    assert "failed      gate: the model of movie-reviews did not pass the gate" in output
    second = records(home)[-1]["stages"]
    assert list(second) == ["validate", "preprocess", "pretrain", "train", "evaluate", "gate", "track"]
    assert second["train"]["key"] == first["train"]["key"]
    assert second["gate"]["exit_code"] == 3


def test_a_wrong_override_is_refused_before_anything_starts(tmp_path: Path) -> None:
    code, output = make_run(tmp_path, "training.epochs=-1")
    assert code == 2
    assert "training.epochs = -1: input should be greater than 0" in output
    assert not (tmp_path / "runs").exists()
