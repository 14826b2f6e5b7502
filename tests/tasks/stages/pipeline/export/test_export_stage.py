"""The stage export: one run's zip, several runs' zip, all eleven files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from include.glue import SUBMISSION_TASKS, TASKS
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput
from tasks.context import Outcome
from tasks.runner import run_stage
from tasks.stages.pipeline.export.stage import plan, run
from tests.tasks.contexts import surroundings
from tests.tasks.stages.pipeline.export.conftest import Finish


def glue(task: str) -> dict[str, Any]:
    return {"task": task, "source": "glue", "path": "glue"}


OWN = {
    "task": "classification", "source": "files", "path": "mine", "labels": ["bad", "so-so", "good"],
    "columns": {"sentence": "text", "label": "stars"},
}  # fmt: skip


def export(finished: Run, data: dict[str, Any], output: Path, **submission: Any) -> Outcome:
    experiment = build({"data": data, "submission": submission}, "test")
    inputs = {stage: finished.artifact(stage) for stage in ("validate", "predict")}
    output.mkdir()
    return run(surroundings(experiment, finished, inputs, output), plan(experiment, finished))


def test_one_task(finish: Finish, tmp_path: Path) -> None:
    output = tmp_path / "out"
    outcome = export(finish("first", glue("SST-2"), [1, 0, 1]), glue("SST-2"), output)
    golden = b"index\tprediction\n0\t1\n1\t0\n2\t1\n"
    assert (output / "SST-2.tsv").read_bytes() == golden
    with zipfile.ZipFile(output / "submission.zip") as archive:
        assert archive.namelist() == ["SST-2.tsv"]
        assert archive.read("SST-2.tsv") == golden
    manifest = json.loads((output / "submission.json").read_text())
    assert manifest["files"]["SST-2.tsv"] == {
        "task": "SST-2", "rows": 3, "placeholder": False, "run": "this run", "predict": "first-predict",
    }  # fmt: skip
    assert outcome.result["warnings"] == ["SST-2.tsv has 3 predictions, but GLUE's SST-2 test split has 1821 rows"]
    assert outcome.result["files"]["submission"] == "submission.zip"
    assert (outcome.result["tasks"], outcome.result["placeholders"]) == (["SST-2"], [])


def test_the_same_bytes_every_time(finish: Finish, tmp_path: Path) -> None:
    finished = finish("first", glue("SST-2"), [1, 0, 1])
    for name in ("one", "two"):
        export(finished, glue("SST-2"), tmp_path / name)
    for file in ("submission.zip", "submission.json", "SST-2.tsv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_own_data(finish: Finish, tmp_path: Path) -> None:
    outcome = export(finish("mine", OWN, [2, 0, 1]), OWN, tmp_path / "out")
    assert (tmp_path / "out" / "predictions.tsv").read_text() == "index\tprediction\n0\tgood\n1\tbad\n2\tso-so\n"
    assert outcome.result["warnings"] == []


def test_own_files_under_a_glue_tasks_name_are_said_to_be_own(finish: Finish, tmp_path: Path) -> None:
    own = {"task": "SST-2", "source": "files", "path": "mine"}
    outcome = export(finish("mine", own, [1, 0]), own, tmp_path / "out")
    (warning,) = outcome.result["warnings"]
    assert warning == "SST-2.tsv contains predictions for your own files, not for GLUE's SST-2 test split"


def test_three_runs_in_one_zip(finish: Finish, tmp_path: Path) -> None:
    finish("cola", glue("CoLA"), [0, 1])
    stsb = finish("stsb", glue("STS-B"), [5.3, 2.0, 1.2345], root="elsewhere")
    sst2 = finish("sst2", glue("SST-2"), [1] * 1821)
    outcome = export(sst2, glue("SST-2"), tmp_path / "out", runs=["cola", str(stsb.folder)])
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as archive:
        assert archive.namelist() == ["CoLA.tsv", "SST-2.tsv", "STS-B.tsv"]
        assert archive.read("STS-B.tsv") == b"index\tprediction\n0\t5.000\n1\t2.000\n2\t1.234\n"
    files = json.loads((tmp_path / "out" / "submission.json").read_text())["files"]
    assert [files[name]["run"] for name in sorted(files)] == ["cola", "this run", str(stsb.folder)]
    assert outcome.result["rows"] == 1821
    assert [text.split()[0] for text in outcome.result["warnings"]] == ["CoLA.tsv", "STS-B.tsv"]


def test_a_run_of_its_own_for_the_zip_names_every_run_it_is_made_of(finish: Finish, tmp_path: Path) -> None:
    first = finish("first", glue("SST-2"), [1, 0, 1])
    finish("second", glue("CoLA"), [1, 1])
    bundle = Run(tmp_path / "runs" / "bundle")
    bundle.adopt(first, without="export", changes={"submission.runs": ["second"]})
    run_stage("export", build(bundle.record()["experiment"], "the bundle"), bundle)
    entry = bundle.record()["stages"]["export"]
    made = json.loads((tmp_path / entry["path"] / "submission.json").read_text())
    assert {name: file["run"] for name, file in made["files"].items()} == {"SST-2.tsv": "first", "CoLA.tsv": "second"}
    assert bundle.record()["from"] == "first" and "export" not in first.record()["stages"]


def test_all_eleven(finish: Finish, tmp_path: Path) -> None:
    finish("cola", glue("CoLA"), [0, 1])
    sst2 = finish("sst2", glue("SST-2"), [1, 0])
    outcome = export(sst2, glue("SST-2"), tmp_path / "out", runs=["cola"], all_tasks=True)
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as archive:
        assert set(archive.namelist()) == {TASKS[name].submission for name in SUBMISSION_TASKS}
        assert len(archive.namelist()) == 11
        assert archive.read("SST-2.tsv") == b"index\tprediction\n0\t1\n1\t0\n"
        assert archive.read("WNLI.tsv").count(b"\n") == 1 + 146
    files = json.loads((tmp_path / "out" / "submission.json").read_text())["files"]
    assert {name for name, entry in files.items() if not entry["placeholder"]} == {"SST-2.tsv", "CoLA.tsv"}
    assert files["STS-B.tsv"] == {"task": "STS-B", "rows": 1379, "placeholder": True, "prediction": "2.500"}
    assert outcome.result["tasks"] == ["CoLA", "SST-2"]
    assert len(outcome.result["placeholders"]) == 9


@pytest.mark.parametrize("data", [OWN, {}], ids=["own", "bundled"])
def test_all_eleven_of_a_task_that_glue_does_not_have(finish: Finish, tmp_path: Path, data: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"is not a GLUE task: set submission\.all_tasks: false"):
        export(finish("mine", data, [1, 0]), data, tmp_path / "out", all_tasks=True)


def test_the_same_task_twice(finish: Finish, tmp_path: Path) -> None:
    finish("again", glue("SST-2"), [1, 1])
    with pytest.raises(BadInput, match=r"this run and again both predict SST-2.tsv"):
        export(finish("first", glue("SST-2"), [1, 0]), glue("SST-2"), tmp_path / "out", runs=["again"])


def test_a_run_that_does_not_exist(finish: Finish, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"submission.runs names nowhere, but .*nowhere/run.json does not exist"):
        export(finish("first", glue("SST-2"), [1, 0]), glue("SST-2"), tmp_path / "out", runs=["nowhere"])


def test_a_run_without_predictions(finish: Finish, tmp_path: Path) -> None:
    other = finish("half", glue("CoLA"), [1, 0])
    record = json.loads(other.file.read_text())
    del record["stages"]["predict"]
    other.file.write_text(json.dumps(record))
    with pytest.raises(BadInput, match="the run half has no predict yet: run the stage predict first"):
        export(finish("first", glue("SST-2"), [1, 0]), glue("SST-2"), tmp_path / "out", runs=["half"])


def test_a_test_row_that_was_set_aside(finish: Finish, tmp_path: Path) -> None:
    lines = [
        {"split": "train", "file": "SST-2/train.tsv", "line": 3, "reason": "empty text", "text": ""},
        {"split": "test", "file": "SST-2/test.tsv", "line": 17, "reason": "empty text", "text": ""},
    ]
    quarantine = "".join(json.dumps(line) + "\n" for line in lines)
    with pytest.raises(BadInput, match=r"SST-2/test.tsv line 17 was quarantined \(empty text\)"):
        export(finish("first", glue("SST-2"), [1, 0], quarantine), glue("SST-2"), tmp_path / "out")
    export(finish("mine", OWN, [1, 0], quarantine), OWN, tmp_path / "own")


def test_the_key_follows_the_other_runs(finish: Finish) -> None:
    first, again = finish("first", glue("SST-2"), [1, 0]), finish("cola", glue("CoLA"), [1, 0])
    alone = build({"data": glue("SST-2")}, "test")
    joined = build({"data": glue("SST-2"), "submission": {"runs": ["cola"]}}, "test")
    assert plan(alone, first).fingerprint() == "{}"
    before = plan(joined, first).fingerprint()
    again.file.write_text(again.file.read_text().replace("cola-predict", "first-predict"))
    assert plan(joined, first).fingerprint() != before


def test_a_model_that_failed_its_gate_is_not_exported(finish: Finish) -> None:
    finished = finish("first", glue("SST-2"), [1, 0, 1])
    joined = finish("second", glue("CoLA"), [1])
    experiment = build({"data": glue("SST-2"), "submission": {"runs": ["second"]}}, "test")
    plan(experiment, finished)
    joined.fail("gate", BadInput("accuracy is too low"), experiment)
    with pytest.raises(BadInput, match="the run second is not exported: accuracy is too low"):
        plan(experiment, finished)


def test_a_quarantined_text_may_hold_any_line_separator(finish: Finish, tmp_path: Path) -> None:
    entry = {"split": "train", "file": "train.tsv", "line": 3, "reason": "label", "text": "one\u2028two\x85three"}
    finished = finish("first", glue("SST-2"), [1, 0, 1], quarantine=json.dumps(entry, ensure_ascii=False) + "\n")
    assert export(finished, glue("SST-2"), tmp_path / "out").result["tasks"] == ["SST-2"]
