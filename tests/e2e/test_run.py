"""The whole pipeline as a user runs it, on a slice of the bundled corpus: real text and weights."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from include.stages import ExitCode
from tests.e2e.make_run import SLICE, command, make_run
from tests.e2e.server import wait_for
from tests.spans import attributes, read_spans


def records(home: Path) -> list[dict[str, Any]]:
    """The runs' records, the oldest first."""
    return [
        json.loads(path.read_text())
        for path in sorted(home.glob("runs/*/run.json"), key=lambda path: path.stat().st_mtime)
    ]


def test_a_run_ends_with_model_report_and_submission(home: Path) -> None:
    stages = records(home)[0]["stages"]
    assert list(stages) == [
        "validate", "preprocess", "pretrain", "teach", "train", "evaluate", "gate", "package", "predict",
        "export", "track",
    ]  # fmt: skip
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


def test_a_run_leaves_one_trace(home: Path) -> None:
    """Airflow exports none here, and the run has the trace all the same."""
    folder = home / "runs" / records(home)[0]["run"]
    spans = {file.stem: read_spans(file) for file in (folder / "traces").iterdir()}
    assert spans.keys() == records(home)[0]["stages"].keys()
    assert len({span["traceId"] for found in spans.values() for span in found}) == 1
    phases = {span["name"] for span in spans["train"]}
    assert phases >= {"load", "training", "data", "forward", "backward", "optimizer", "evaluation", "commit", "train"}
    for stage in ("preprocess", "predict"):
        assert "pieces" in {span["name"] for span in spans[stage]}
    resource = attributes(spans["gate"][-1]["resource"])
    assert (resource["dag_id"], resource["try"], resource["run"]) == ("finetune", "1", folder.name)


def test_a_record_says_when_its_stages_ran_and_for_which_dag_run(home: Path) -> None:
    record = records(home)[0]
    assert record["dag_id"] == "finetune" and record["run_id"].startswith("manual__")
    times = [entry[name] for entry in record["stages"].values() for name in ("started", "ended")]
    assert times == sorted(times) and not any(entry["reused"] for entry in record["stages"].values())
    assert list(home.glob("runs/*/at-work/*")) == []


def test_a_run_prints_a_line_for_each_stage_and_the_rest_into_its_log(first_run: tuple[Path, str]) -> None:
    home, output = first_run
    stages = re.findall(r"^(\w+) +[\d:]+ (?:s|min)  ", output, re.MULTILINE)
    assert stages == list(records(home)[0]["stages"])
    (log,) = home.glob("airflow/logs/dag_id=finetune/run_id=make-run-*/log.txt")
    assert f"log         {log}" in output
    assert "INFO tasks.training.metrics_logger: step" in log.read_text()
    assert "INFO" not in output
    assert "horovod" not in output  # one rank does without


def test_a_second_run_shares_the_artifacts_and_a_failed_gate_stops_it(home: Path) -> None:
    first = records(home)[0]["stages"]
    code, output = make_run(home, *SLICE[:-1], "gate.accuracy=0.999")
    assert code == 3, output
    assert "verdict     not passed" in output
    assert "failed      gate: the model of movie-reviews did not pass the gate" in output
    second = records(home)[-1]["stages"]
    assert list(second) == ["validate", "preprocess", "pretrain", "teach", "train", "evaluate", "gate", "track"]
    assert second["train"]["key"] == first["train"]["key"] and second["train"]["reused"]
    assert second["gate"]["exit_code"] == 3


def test_a_wrong_override_is_refused_before_anything_starts(tmp_path: Path) -> None:
    code, output = make_run(tmp_path, "training.epochs=-1")
    assert code == 2
    assert "training.epochs = -1: input should be greater than 0" in output
    assert not (tmp_path / "runs").exists()


def test_a_stage_that_may_not_start_tells_why(tmp_path: Path) -> None:
    home, data = tmp_path / "home", tmp_path / "elsewhere/SST-2"
    home.mkdir()
    data.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (data / f"{split}.tsv").write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
    own = ("data.task=SST-2", "data.source=glue", f"data.path={data.parent}")
    code, output = make_run(home, *own, SPARK_BERT_DATA=str(tmp_path / "allowed"))
    assert code == ExitCode.BAD_INPUT, output
    reason = f"{data.parent} is not below {tmp_path / 'allowed'}: move it there"
    assert f"\nfailed      validate: {reason}" in output and output.count(reason) == 1


def test_a_failed_fetch_ends_before_airflow_starts(tmp_path: Path) -> None:
    code, output = make_run(tmp_path, "model.name=./nowhere")
    assert code == 2
    assert "nowhere has no config.json" in output
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
def test_two_ranks_train_on_horovod(tmp_path: Path) -> None:
    code, output = make_run(tmp_path, *SLICE, "training.ranks=2")
    assert code == 0, output
    training = json.loads(
        Path(records(tmp_path)[0]["stages"]["train"]["result"]["artifact"], "training.json").read_text()
    )
    assert training["ranks"] == 2 and training["horovod"]


def test_an_interrupted_run_leaves_no_process(tmp_path: Path) -> None:
    run = subprocess.Popen(
        command(*SLICE), env=os.environ | {"SPARK_BERT_HOME": str(tmp_path)}, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: [*tmp_path.glob("artifacts/validate/.*")])
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 143
    left = [process for process in psutil.process_iter() if str(tmp_path) in _command_line(process)]
    assert said.splitlines()[-1] == "stopped: run the same command again to go on"
    assert not left, "nothing works on when it is called stopped"


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
