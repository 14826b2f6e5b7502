"""The process operator: exit codes, logs, environment and kills, with real processes throughout."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import structlog
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from include.experiment import Experiment
from include.named_experiments import load
from include.runs import Run
from include.secrets import VARIABLES
from include.stages import ExitCode
from spark_bert.dag.params import from_form
from spark_bert.deployment.inputs import uses_mlflow
from spark_bert.deployment.places import REPOSITORY, run_folder
from spark_bert.operators.base import Outcome, failure
from spark_bert.operators.process import ProcessStageOperator, environment
from spark_bert.operators.stage_log import parse_log_tail
from tests.airflow_home import Interpreter
from tests.plugins.operators.conftest import execute
from tests.plugins.operators.daemon import context

LOG = "2026-01-02 03:04:05,678 {} tasks.stages.pipeline.train: {}"


def operator(*command: object, stage: str = "train") -> ProcessStageOperator:
    operator = ProcessStageOperator(task_id=stage, stage=stage, experiment_of=from_form)
    operator.command, operator.experiment = [str(part) for part in command], Experiment()
    return operator


def run(*command: object) -> Outcome:
    return operator(*command).run_stage({})


def test_result_and_reason(interpreter: Interpreter) -> None:
    body = f"""
print("a library's chatter")
print('{{"rows": 3}}')
print("{LOG.format("ERROR", "no such file: a.tsv")}", file=sys.stderr)
print("goodbye", file=sys.stderr)
raise SystemExit(2)
"""
    assert run(interpreter(body)) == Outcome(2, '{"rows": 3}', "no such file: a.tsv")


def test_a_crash_is_explained_by_its_last_line(interpreter: Interpreter) -> None:
    ending = run(interpreter("raise ValueError('the loss is not finite')"))
    assert ending == Outcome(1, "", "ValueError: the loss is not finite")


@pytest.mark.parametrize("code", [ExitCode.BAD_INPUT, ExitCode.GATE_FAILED])
def test_final_codes_are_not_tried_again(code: ExitCode) -> None:
    error = failure("gate", Outcome(code, "", "accuracy 0.90 is below 0.927"))
    assert isinstance(error, AirflowFailException)
    assert str(error) == "gate: accuracy 0.90 is below 0.927"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (75, "train ended with exit code 75 (transient), another try may succeed: rank 1 is lost"),
        (143, "train ended with exit code 143 (stopped), another try may succeed: rank 1 is lost"),
        (139, "train was ended by SIGSEGV, another try may succeed: rank 1 is lost"),
        (137, "train was ended by SIGKILL, which the kernel sends when memory runs out, another try may succeed: rank"),
        (1, "train crashed with exit code 1, another try may succeed: rank 1 is lost"),
    ],
)
def test_other_codes_are_tried_again(code: int, message: str) -> None:
    error = failure("train", Outcome(code, "", "rank 1 is lost"))
    assert not isinstance(error, AirflowFailException)
    assert str(error).startswith(message)


def test_a_stage_that_kills_itself_ends_with_the_signals_code(interpreter: Interpreter) -> None:
    assert run(interpreter("os.kill(os.getpid(), signal.SIGKILL)")).code == 137


def test_a_missing_environment_is_named() -> None:
    with pytest.raises(AirflowFailException, match="no Python environment of the stages at /nowhere/python: create"):
        run(Path("/nowhere/python"))


class Recorder:
    """A task log that makes a file as soon as it is told what the stage waits for."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag
        self.lines: list[tuple[str, str]] = []

    def log(self, level: int, template: str, text: str, **fields: str) -> None:
        self.lines.append((logging.getLevelName(level), template % text))
        self.flag.touch()


def test_the_log_streams_with_its_levels(interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage goes on only when its first line has been logged, so this ends only if the log streams."""
    body = f"""
from pathlib import Path
print("{LOG.format("WARNING", "one row is empty")}", file=sys.stderr)
while not Path(sys.argv[1]).exists():
    time.sleep(0.01)
print("26/01/02 WARN Utils: a Java line", file=sys.stderr)
sys.stderr.write("epoch 1\\repoch 2\\n" + "x" * 20000 + "\\n")
sys.stderr.flush()
sys.stderr.buffer.write(b"caf\\xe9\\x00\\n")
"""
    python = interpreter(body)
    recorder = Recorder(python.with_name("seen"))
    monkeypatch.setattr(ProcessStageOperator, "log", recorder)
    assert run(python, recorder.flag).code == 0
    assert recorder.lines[:4] == [
        ("WARNING", "tasks.stages.pipeline.train: one row is empty"),
        ("INFO", "26/01/02 WARN Utils: a Java line"),
        ("INFO", "epoch 1"),
        ("INFO", "epoch 2"),
    ]
    assert "".join(text for _, text in recorder.lines[4:7]) == "x" * 20000
    assert recorder.lines[7] == ("INFO", "caf\\xe9\x00")


def test_lines_in_json_are_shown_as_text_with_what_else_they_say(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
import json
line = {"time": "2026-01-02T03:04:05.678+00:00", "level": "ERROR", "logger": "tasks", "message": "no rows"}
print(json.dumps(line | {"trace_id": "0a", "exception": "x" * 20000, "event": "a library's own"}), file=sys.stderr)
print('{"time": "is not all", "rows": 3}', file=sys.stderr)
print('{"rows": 3}')
sys.exit(2)
"""
    python = interpreter(body)
    log = structlog.testing.LogCapture()
    wrapped = structlog.wrap_logger(None, processors=[log], wrapper_class=structlog.stdlib.BoundLogger)
    monkeypatch.setattr(ProcessStageOperator, "log", wrapped)
    assert run(python) == Outcome(2, '{"rows": 3}', "no rows")
    first, second = log.entries
    assert (first["log_level"], first["event"]) == ("error", "%s") and first["positional_args"] == ("tasks: no rows",)
    assert first["trace_id"] == "0a" and first["exception"] == "x" * 20000
    assert second["positional_args"] == ('{"time": "is not all", "rows": 3}',)


def test_a_result_is_told_from_log_lines_in_json() -> None:
    line = '{"time": "2026-01-02T03:04:05", "level": "%s", "logger": "tasks", "message": "%s"}'
    lines = [line % ("INFO", "at work"), '{"rows": 3}', line % ("ERROR", "no rows"), line % ("INFO", "goodbye")]
    assert parse_log_tail(lines) == ('{"rows": 3}', "no rows")
    assert parse_log_tail([lines[0], lines[3]]) == ("", "goodbye")


def test_a_flood_on_stdout_does_not_block(interpreter: Interpreter) -> None:
    body = "[print('y' * 80) for _ in range(50000)]; print('{}')"
    assert run(interpreter(body)).line == "{}"


@pytest.mark.parametrize(("map_index", "index"), [(-1, {}), (0, {"AIRFLOW_CTX_MAP_INDEX": "0"})])
def test_a_stage_is_told_its_dag_run_and_nothing_else_of_airflows(
    interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch, map_index: int, index: dict[str, str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CTX_DAG_ID", "of the worker")
    context: Any = {"dag_run": SimpleNamespace(dag_id="finetune", run_id="manual__1")}
    context |= {"params": {"experiment": "movies"}, "ti": SimpleNamespace(run_id="manual__1", map_index=map_index)}
    gate = ProcessStageOperator(task_id="gate", stage="gate", experiment_of=from_form)
    gate.render_template_fields(context)
    body = "import json; print(json.dumps({n: v for n, v in os.environ.items() if n.startswith('AIRFLOW')}))"
    gate.command = [str(interpreter(body))]
    told = {"AIRFLOW_CTX_DAG_ID": "finetune", "AIRFLOW_CTX_DAG_RUN_ID": "manual__1"}
    assert json.loads(gate.run_stage(context).line) == told | index


def test_a_refusal_is_told_once_in_the_log_and_kept_in_the_run(home: Path) -> None:
    """Airflow folds what it logs before `execute`. A later stage with the same experiment does not refuse it again."""
    where = {"dag_id": "finetune", "run_id": "manual__1"}
    now: Any = {"dag_run": SimpleNamespace(**where), "params": {"experiment": "movies", "training.epoch": 1}}
    validate, track = operator(stage="validate"), operator(stage="track")
    for task in (validate, track):
        task.render_template_fields(now)
    for _ in range(2):  # a task that is cleared refuses it again
        with pytest.raises(AirflowFailException, match=r"unknown key training\.epoch, did you mean epochs\?"):
            execute(validate, now)
    record = Run(run_folder(**where)).record()
    entry = record["stages"]["validate"]
    assert record == {"run": run_folder(**where).name, **where, "stages": {"validate": entry}}
    assert (entry["exit_code"], entry["key"]) == (ExitCode.BAD_INPUT, "") and "training.epoch" in entry["message"]
    with pytest.raises(AirflowSkipException, match=r"validate was refused already: .* training\.epoch"):
        execute(track, now)


def test_secrets_stay_with_the_worker(interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("AIRFLOW__CORE__FERNET_KEY", "AIRFLOW_CONN_DB", "AIRFLOW__API_AUTH__JWT_SECRET", "AWS_SECRET_ACCESS_KEY")
    for name in secrets:
        monkeypatch.setenv(name, "never to be seen")
    passed = {"JAVA_HOME": "/java", "https_proxy": "http://proxy", "SSL_CERT_FILE": "/ca", "SPARK_BERT_CACHE": "/c"}
    for name, value in passed.items():
        monkeypatch.setenv(name, value)
    line = run(interpreter("import json; print(json.dumps(dict(os.environ)))")).line
    assert "never to be seen" not in line and not any(name in line for name in secrets)
    assert environment("train", Experiment()).items() >= passed.items()
    assert f'"PYTHONPATH": "{REPOSITORY}"' in line


@pytest.mark.parametrize(
    ("stage", "overrides", "expected"),
    [
        ("train", (), ""),
        ("train", ("runtime.download=true",), "HF_TOKEN HF_TOKEN_PATH SPARK_BERT_SECRETS"),
        ("gate", ("runtime.download=true",), ""),  # it reads no downloads
        ("track", (), "MLFLOW_TRACKING_PASSWORD MLFLOW_TRACKING_TOKEN MLFLOW_TRACKING_USERNAME SPARK_BERT_SECRETS"),
        ("validate", ("scoring.input=jdbc:x://y/z", "scoring.table=t", "scoring.driver=d.jar"), ""),
        (
            "score",
            ("scoring.input=jdbc:x://y/z", "scoring.table=t", "scoring.driver=d.jar"),
            "MLFLOW_TRACKING_PASSWORD MLFLOW_TRACKING_TOKEN MLFLOW_TRACKING_USERNAME SPARK_BERT_JDBC_PASSWORD "
            "SPARK_BERT_JDBC_USER SPARK_BERT_SECRETS",
        ),
        ("predict", ("streaming.source=kafka", "streaming.topic=a", "streaming.brokers=b:1"), ""),
    ],
)
def test_a_stage_gets_the_secrets_that_it_needs(
    stage: str, overrides: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*itertools.chain(*VARIABLES.values()), "SPARK_BERT_SECRETS"):
        monkeypatch.setenv(name, "s3cr3t")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ann:s3cr3t@mlflow")
    given = environment(stage, load("movies", overrides))
    assert ("MLFLOW_TRACKING_URI" in given) == uses_mlflow(stage, load("movies", overrides))
    given.pop("MLFLOW_TRACKING_URI", None)
    assert " ".join(sorted(name for name, value in given.items() if "s3cr3t" in value)) == expected


def test_only_a_stage_that_uses_a_store_gets_the_login_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    logins = {"AWS_PROFILE": "mine", "AZURE_CLIENT_ID": "mine", "GOOGLE_APPLICATION_CREDENTIALS": "mine"}
    for name, value in logins.items():
        monkeypatch.setenv(name, value)
    cluster = load("movies", ["runtime.spark_master=spark://spark:7077"])
    assert "mine" not in environment("predict", cluster).values()  # its executors share the home
    monkeypatch.setenv("SPARK_BERT_STAGING", "s3://bucket/staging")
    assert environment("predict", cluster).items() >= {**logins, "SPARK_BERT_STAGING": "s3://bucket/staging"}.items()
    assert not {"mine"} & {*environment("gate", cluster).values(), *environment("predict", load("movies")).values()}
    table = load("movies", ["data.source=delta", "data.path=s3://bucket/reviews"])
    assert environment("validate", table).items() >= logins.items()


def survivors(marker: str) -> list[psutil.Process]:
    found = [p for p in psutil.process_iter(["cmdline", "status"]) if marker in (p.info["cmdline"] or [])]
    return [p for p in found if p.info["status"] != psutil.STATUS_ZOMBIE]


#: A stage with a rank in a session of its own. Both run until they are stopped.
FAMILY = """
rank = [sys.executable, "-S", "-c", "import time; time.sleep(600)", sys.argv[1]]
subprocess.Popen(rank, start_new_session=True)
signal.signal(signal.SIGTERM, lambda *_: time.sleep(0.2) or sys.exit(143))
print("family is up", file=sys.stderr, flush=True)
time.sleep(600)
"""


def test_killing_the_task_kills_the_stage_and_its_ranks(interpreter: Interpreter) -> None:
    python = interpreter(FAMILY)
    training = operator(python, python)
    endings: list[Outcome] = []
    thread = threading.Thread(target=lambda: endings.append(training.run_stage({})))
    thread.start()
    wait_for(lambda: len(survivors(str(python))) >= 3)  # the guard, the stage, the rank
    training.on_kill()
    training.wait()
    assert survivors(str(python)) == []
    thread.join(timeout=20)
    assert endings[0].code == 143


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_when_the_worker_dies_so_does_the_stage(number: signal.Signals, interpreter: Interpreter) -> None:
    python = str(interpreter(FAMILY))
    work = (
        "from include.experiment import Experiment;"
        "from spark_bert.operators.process import ProcessStageOperator as O;"
        "o = O(task_id='train', stage='train', experiment_of=lambda context: Experiment());"
        "o.experiment = Experiment();"
        f"o.command = [{python!r}, {python!r}]; o.run_stage({{}})"
    )
    places = f"{REPOSITORY}:{REPOSITORY / 'plugins'}"
    worker = subprocess.Popen(
        [sys.executable, "-c", work], env=os.environ | {"PYTHONPATH": places}, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: len(survivors(python)) >= 3)
    worker.send_signal(number)
    assert worker.wait(timeout=30) != 0
    wait_for(lambda: survivors(python) == [])


def wait_for(condition: object, seconds: float = 30) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_run_folders_are_safe_and_distinct(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    ids = [
        "manual__2026-01-01T00:00:00+00:00",
        "manual__2026-01-01T00:00:00-00:00",
        "../../etc",
        "x" * 250,
        "x" * 249,
        "é",
    ]
    folders = [run_folder("finetune", run_id) for run_id in ids]
    assert len(set(folders)) == len(ids)
    for folder in folders:
        assert folder.parent == tmp_path / "runs"
        assert re.fullmatch(r"finetune-[A-Za-z0-9_-]+", folder.name) and len(folder.name) < 128


def test_evidence_outlives_a_refusal(interpreter: Interpreter) -> None:
    """What a failed gate printed is the task's XCom all the same."""

    pushed: dict[str, object] = {}
    now = context(xcom_push=lambda key, value: pushed.update({key: value}))
    gate = operator(interpreter("""print('{"passed": false}')\nraise SystemExit(3)"""), stage="gate")
    with pytest.raises(AirflowFailException):
        execute(gate, now)
    with pytest.raises(AirflowException, match="crashed with exit code 1"):
        execute(operator(interpreter("print('no JSON')\nraise SystemExit(1)"), stage="gate"), now)
    assert pushed == {"return_value": {"passed": False}} and gate.result == {"passed": False}


def test_no_result_line_is_an_error(interpreter: Interpreter) -> None:
    training = operator(interpreter("print('done')"))
    with pytest.raises(AirflowException, match="last line on stdout is not JSON: 'done'"):
        execute(training, context())
