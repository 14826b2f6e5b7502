from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from include.artifacts import Manifest
from include.experiment import Experiment
from include.logs import VARIABLE
from include.named_experiments import load
from include.runs import DAG_ID, MAP_INDEX, RUN_ID, AtWork, Run, at_work
from include.stages import STAGES, BadInput, ExitCode, Transient
from tasks import digests, runner
from tasks.__main__ import main
from tasks.context import Context, Outcome
from tests.spans import read_spans

EXPERIMENT = load("movies")
#: What takes long to import, and no stage needs to find its artifact.
WORK = ["torch", "transformers", "pyspark", "great_expectations", "pandas", "matplotlib", "mlflow", "sklearn"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "runs" / "first")


def _command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tasks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"SPARK_BERT_HOME": str(folder)})


def test_a_finished_stage_returns_at_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.stages.pipeline.validate.stage as stage

    calls: list[str] = []

    def work(context: Context, plan: object) -> Outcome:
        calls.append(context.run.folder.name)
        (context.output / "data").write_text("x")
        return Outcome({"rows": 1})

    monkeypatch.setattr(stage, "run", work)
    began = time.time()
    first = runner.run_stage("validate", EXPERIMENT, run)
    other = Run(run.folder.parent / "second")
    assert runner.run_stage("validate", EXPERIMENT, other).path == first.path
    assert calls == ["first"]
    made, found = run.record()["stages"]["validate"], other.record()["stages"]["validate"]
    assert found["result"]["rows"] == 1
    assert (made["reused"], found["reused"]) == (False, True)
    assert (
        began - 0.001 <= made["started"] <= made["ended"] <= found["started"] <= found["ended"] <= time.time() + 0.001
    )
    runner.run_stage("validate", EXPERIMENT, run)
    assert run.record()["stages"]["validate"] == made  # this run has made it, and then


def test_what_was_read_may_change_while_the_work_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "encoder.json"
    with digests.noting():
        for settled in (False, True):
            file.write_text("1")
            digests.digest(file)
            if settled:
                digests.settle()
            file.write_text("2")
            with nullcontext() if settled else pytest.raises(Transient, match=r"encoder\.json was changed"):
                digests.check_unchanged()


@pytest.mark.parametrize("ending", [Outcome({}), BadInput("half a row")])
def test_a_file_that_is_replaced_while_it_is_read_is_not_kept_under_its_old_key(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: Outcome | BadInput
) -> None:
    import tasks.stages.pipeline.validate.stage as stage

    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\ngood\t1\n")

    def work(context: Context, plan: object) -> Outcome:
        file = tmp_path / "dev.tsv"
        times = file.stat().st_atime_ns, file.stat().st_mtime_ns
        file.write_text("sentence\tlabel\nevil\t1\n")
        os.utime(file, ns=times)  # as copies do that keep the time
        if isinstance(ending, BadInput):
            raise ending
        return ending

    data = {"task": "SST-2", "source": "files", "path": str(tmp_path)}
    monkeypatch.setattr(stage, "run", work)
    with pytest.raises(Transient, match=r"dev\.tsv was changed while it was read, so nothing was kept"):
        runner.run_stage("validate", Experiment.model_validate({"data": data}), run)
    assert not list((tmp_path / "artifacts/validate").iterdir())


def test_a_stage_at_work_can_be_seen_until_it_ends_in_any_way(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.stages.pipeline.validate.stage as stage

    file, seen = run.folder / "at-work" / "validate.json", dict[str, Any]()
    endings: list[BaseException | Outcome] = [
        BadInput("wrong"), Transient("later"), RuntimeError("bug"), SystemExit(143),
        Outcome(exit_code=ExitCode.GATE_FAILED),
    ]  # fmt: skip

    def work(context: Context, plan: object) -> Outcome:
        seen.update(json.loads(file.read_text()))
        context.tell_steps(640)
        seen.update(planned_steps=[seen["planned_steps"], json.loads(file.read_text())["planned_steps"]])
        ending = endings.pop(0)
        if isinstance(ending, Outcome):
            assert (seen["key"], seen["progress"]) == (context.manifest.key, context.checkpoints.name)
            return ending
        raise ending

    monkeypatch.setattr(stage, "run", work)
    while endings:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"stage": "validate", "what": "a killed try has left"}')
        before = time.time()
        with suppress(BadInput, Transient, RuntimeError, SystemExit):
            runner.run_stage("validate", EXPERIMENT, run)
        assert seen["stage"] == "validate" and before - 0.001 <= seen["since"] <= time.time() + 0.001
        assert seen["planned_steps"] == [None, 640]
        assert list(file.parent.iterdir()) == []
    entry = run.record()["stages"]["validate"]
    assert (entry["exit_code"], entry["reused"], entry["started"]) == (3, False, seen["since"])
    runner.run_stage("validate", EXPERIMENT, run)  # is done already
    assert list(file.parent.iterdir()) == []


def test_a_try_that_has_been_replaced_leaves_the_record_of_the_next_one(run: Run) -> None:
    run.folder.mkdir(parents=True)
    late, next_try = (AtWork(stage="train", key="k", progress="p", since=since) for since in (1.0, 2.0))
    with at_work(run.folder, next_try):
        with at_work(run.folder, late):
            (run.folder / "at-work" / "train.json").write_text(next_try.model_dump_json())
        assert (run.folder / "at-work" / "train.json").is_file()
    assert not (run.folder / "at-work" / "train.json").exists()


def test_work_goes_on_where_it_cannot_be_recorded(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.folder.mkdir(parents=True)
    (run.folder / "at-work").write_text("a file in the place of the folder")
    with at_work(run.folder, AtWork(stage="train", key="k", progress="p", since=1.0)) as plan:
        plan(8)
    assert "train.json cannot be written, so the panel does not show that train is at work" in caplog.text


def test_a_stage_notes_the_dag_run_that_has_started_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput):
        runner.run_stage("train", EXPERIMENT, run)
    assert not run.folder.exists(), "a mistyped name does not become a run"
    monkeypatch.setenv(DAG_ID, "finetune")
    monkeypatch.setenv(RUN_ID, "manual__2026-01-01T00:00:00+00:00")
    monkeypatch.setenv(MAP_INDEX, "3")
    with pytest.raises(BadInput):
        runner.run_stage("train", EXPERIMENT, run)
    monkeypatch.delenv(DAG_ID)
    monkeypatch.delenv(RUN_ID)
    monkeypatch.delenv(MAP_INDEX)
    with pytest.raises(BadInput):
        runner.run_stage("train", EXPERIMENT, run)  # by a person, who goes on with the run
    assert (run.record()["dag_id"], run.record()["run_id"]) == ("finetune", "manual__2026-01-01T00:00:00+00:00")
    assert run.record()["map_index"] == 3


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space is left below"),
        (OSError(errno.EIO, "Input/output error"), "nothing was kept"),
        (OSError(errno.EROFS, "Read-only", "/data/x"), "/data/x: the file system is read-only: mount it with write"),
    ],
)
def test_a_full_or_broken_disk_keeps_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: OSError, message: str
) -> None:
    import tasks.stages.pipeline.validate.stage as stage

    def work(context: Context, plan: object) -> Outcome:
        (context.output / "half").write_text("x")
        raise error

    monkeypatch.setattr(stage, "run", work)
    with pytest.raises(Transient, match=message):
        runner.run_stage("validate", EXPERIMENT, run)
    assert list((run.store.root / "validate").iterdir()) == []
    assert message in run.record()["stages"]["validate"]["message"]
    with pytest.raises(BadInput, match="validate failed in the run first"):
        run.artifact("validate")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (
            errno.EACCES,
            "/data/x.tsv: user {user} has no permission to use it: give that user access, or choose another path",
        ),
        (errno.EPERM, "/data/x.tsv: user {user} has no permission to do this"),
        (errno.ENOTDIR, "/data/x.tsv: there is a file where a folder is expected: move it away"),
        (errno.EISDIR, "/data/x.tsv: there is a folder where a file is expected: move it away"),
        (errno.ENAMETOOLONG, "/data/x.tsv: the name is longer than the file system allows"),
        (errno.ELOOP, "/data/x.tsv: its symbolic links form a loop"),
    ],
)
def test_what_the_system_will_refuse_again_is_bad_input(
    run: Run, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    import tasks.stages.pipeline.validate.stage as stage

    def work(context: Context, plan: object) -> Outcome:
        raise OSError(number, os.strerror(number), "/data/x.tsv")

    monkeypatch.setattr(stage, "run", work)
    with pytest.raises(BadInput) as error:
        runner.run_stage("validate", EXPERIMENT, run)
    assert message.format(user=os.getuid()) in str(error.value)
    assert run.record()["stages"]["validate"]["exit_code"] == 2


@pytest.mark.parametrize("stage", ["evaluate", "package"])
def test_weights_are_hashed_before_they_are_used(run: Run, stage: str) -> None:
    """A flipped byte that keeps size and time, as a disk or a person may leave it."""
    for name in ("validate", "preprocess", "train", "gate"):
        with run.store.writing(name, "k1") as folder:
            (folder / "data").write_text("weights")
            manifest = Manifest(name, "k1", STAGES[name].version, STAGES[name].part(EXPERIMENT), {}, "", "")
            run.add(run.store.commit(folder, manifest), EXPERIMENT)
    file = run.store.path("train", "k1") / "data"
    state = file.stat()
    file.write_text("weightz")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(BadInput, match=f"{file} is missing or damaged: remove .* and run train again"):
        runner.run_stage(stage, EXPERIMENT, run)


def test_a_stage_without_its_input_says_what_to_run(run: Run) -> None:
    with pytest.raises(BadInput, match=r"there is no run .*first: name one that is .*run the stage preprocess first"):
        runner.run_stage("train", EXPERIMENT, run)
    run.folder.mkdir(parents=True)
    with pytest.raises(BadInput, match="first has no preprocess yet: run the stage preprocess first"):
        runner.run_stage("train", EXPERIMENT, run)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("train", "--set", "training.epochs=-1"), 2, "training.epochs = -1"),
        (("train", "--set", "training.epochs=1"), 2, "run the stage preprocess first"),
        (("validate", "--experiment", "nothing"), 2, "unknown experiment 'nothing'"),
        (("valdate",), 2, "invalid choice"),
    ],
)
def test_the_command_line_ends_with_the_right_code(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = _command(tmp_path, *arguments, "--run", str(tmp_path / "runs" / "first"))
    assert done.returncode == code
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--run", "{home}/runs/.."), "must be in a folder named runs"),
        (("--run", "{home}/runs/\udcff"), "is not UTF-8"),
        (("--run", "{home}/runs/" + "x" * 300), "xxx...: the name is longer than the file system allows"),
        (("--run", "{home}/file/runs/first"), "file/runs/first: there is a file where a folder is expected"),
        (("--run", "{home}/runs/file"), "runs/file: there is a file where a folder is expected"),
        (("--run", "{home}/runs/wrong"), "wrong/run.json is damaged"),
        (("--run", "{home}/runs/first", "--experiment", ""), "unknown experiment ''"),
        (("--run", "{home}/runs/first", "--set", "data.path=\udcff"), "data.path: '\\udcff' contains a NUL char"),
        (
            ("--run", "{home}/runs/first", "--set", "data.source=files", "--set", "data.path=~no-such-user/x"),
            "there is no user of that name",
        ),
    ],
)
def test_a_command_that_cannot_be_meant_is_bad_input(
    tmp_path: Path, arguments: tuple[str, ...], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "runs" / "wrong").mkdir(parents=True)
    (tmp_path / "runs" / "wrong" / "run.json").write_text("[]")
    (tmp_path / "runs" / "file").touch()
    (tmp_path / "file").touch()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["validate", *(one.replace("{home}", str(tmp_path)) for one in arguments)]) == 2
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert message in caplog.text and "Traceback" not in caplog.text


def test_the_last_line_on_stdout_is_the_result_and_what_is_found_imports_nothing_for_the_work(tmp_path: Path) -> None:
    arguments = "validate", "--run", str(tmp_path / "runs" / "first")
    done = _command(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["stage"] == "validate"
    assert Path(result["artifact"], "manifest.json").is_file()
    code = f"import sys; from tasks.__main__ import main; assert not main({arguments}); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    line, modules = found.stdout.splitlines()
    assert json.loads(line)["artifact"] == result["artifact"] and "tasks.stages.pipeline.validate.stage" in modules
    assert not set(WORK) & set(modules.split())


def test_a_log_in_json_names_run_stage_and_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "json")
    (tmp_path / "runs" / "first").mkdir(parents=True)
    done = _command(tmp_path, "train", "--run", str(tmp_path / "runs" / "first"))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = map(json.loads, done.stderr.splitlines())
    assert (line["level"], line["run"], line["stage"]) == ("ERROR", "first", "train")
    assert "run the stage preprocess first" in line["message"]
    (span,) = read_spans(tmp_path / "runs" / "first" / "traces" / "train.jsonl")
    assert span["traceId"] == line["trace_id"] and "run the stage preprocess first" in span["status"]["message"]


def test_no_stage_lacks_a_plan_by_mistake() -> None:
    def has(name: str, function: str) -> bool:
        return hasattr(import_module(f"{runner._PACKAGES[name]}.stage"), function)

    assert {name for name in STAGES if not has(name, "plan")} == {"challenge", "package", "predict"}
    assert [name for name in STAGES if has(name, "committed")] == ["ingest"]


@pytest.mark.parametrize("then", ["", "; tasks.stages.pipeline.pretrain.stage.run(None, '')"], ids=["found", "no text"])
def test_a_stage_without_work_imports_nothing_for_it(then: str) -> None:
    stages = [f"{package}.stage" for package in runner._PACKAGES.values()]
    code = f"import sys, {', '.join(stages)}{then}; print(sorted(sys.modules.keys() & {WORK}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_labeling_imports_no_metrics() -> None:
    modules = "'sklearn', 'scipy.stats', 'pandas'"
    code = f"import sys, tasks.inference.labeler; print(sorted(sys.modules.keys() & {{{modules}}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_stage_finds_its_checkpoints_again_until_its_artifact_is_committed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tasks.stages.pipeline.validate.stage as stage

    found: list[bool] = []

    def work(context: Context, plan: object) -> Outcome:
        found.append(context.checkpoints.exists())
        context.checkpoints.mkdir(parents=True, exist_ok=True)
        if len(found) == 1:
            raise Transient("stopped half-way")
        return Outcome()

    monkeypatch.setattr("tasks.stages.pipeline.validate.stage.plan", lambda experiment, run: "")
    monkeypatch.setattr(stage, "run", work)
    with pytest.raises(Transient):
        runner.run_stage("validate", EXPERIMENT, run)
    runner.run_stage("validate", EXPERIMENT, run)
    assert found == [False, True]
    assert list((run.folder.parent.parent / "checkpoints" / "validate").iterdir()) == []


def test_the_record_says_that_a_stage_was_stopped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.stages.pipeline.validate.stage as stage

    def work(context: Context, plan: object) -> Outcome:
        raise SystemExit(ExitCode.STOPPED)

    monkeypatch.setattr("tasks.stages.pipeline.validate.stage.plan", lambda experiment, run: "")
    monkeypatch.setattr(stage, "run", work)
    with pytest.raises(SystemExit):
        runner.run_stage("validate", EXPERIMENT, run)
    entry = run.record()["stages"]["validate"]
    assert (entry["key"], entry["exit_code"]) == ("", ExitCode.STOPPED) and "was stopped" in entry["message"]


def test_only_a_finished_training_or_a_person_discards_checkpoints(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.stages.pipeline.validate.stage as stage

    def work(context: Context, plan: object) -> Outcome:
        if (context.checkpoints / "step-8").exists():
            return Outcome()
        (context.checkpoints / "step-8").mkdir(parents=True)
        raise BadInput("the loss is not finite")

    monkeypatch.setattr("tasks.stages.pipeline.validate.stage.plan", lambda experiment, run: "")
    monkeypatch.setattr(stage, "run", work)
    kept = run.folder.parent.parent / "checkpoints" / "validate"
    with pytest.raises(BadInput, match=rf"not finite; .* checkpoints in {kept}/\w+: remove that folder to start anew"):
        runner.run_stage("validate", EXPERIMENT, run)
    runner.run_stage("validate", EXPERIMENT, run)
    assert list(kept.iterdir()) == []


def test_a_training_may_go_on_with_another_number_of_ranks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.stages.pipeline.pretrain.stage as stage

    contexts: list[Context] = []

    def work(context: Context, plan: object) -> Outcome:
        contexts.append(context)
        return Outcome()

    monkeypatch.setattr("tasks.stages.pipeline.pretrain.stage.plan", lambda experiment, run: "")
    monkeypatch.setattr(stage, "run", work)
    text = "pretraining.text=/data/text.gz"
    for overrides in (["training.ranks=1"], ["training.ranks=2"], ["training.ranks=2", "pretraining.epochs=3"]):
        runner.run_stage("pretrain", load("movies", [text, *overrides]), run)
    one, two, longer = (context.checkpoints for context in contexts)
    assert one == two != longer
