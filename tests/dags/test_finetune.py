"""The Dag finetune: it has the pipeline's shape, and runs through Airflow for real."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from include.named_experiments import load
from include.stages import PIPELINE, STAGES, BadInput
from spark_bert.operators.process import ProcessStageOperator
from tests.airflow_home import HOME, Interpreter, airflow
from tests.plugins.receivers import WebhookServer, serving

#: The tasks behind the pipeline that decide the state of the run, track it, and end it.
END = ("succeeded", "track", "end")
#: Stands in for the stages: each prints its own arguments as its result, and one may refuse.
STAGES_STAND_IN = """
import json
import re
options = dict(zip(sys.argv[4::2], sys.argv[5::2]))
gate = json.loads(options["--experiment"]).get("gate", {}).get("accuracy", 0)
key = "0123456789abcdef"
result = {"stage": stage, "artifact": f"/home/artifacts/{stage}/{key}", "run": options["--run"]}
result["try"] = os.environ["AIRFLOW_CTX_TRY_NUMBER"]
result["files"] = {"gate": {"verdict": "verdict.json"}, "evaluate": {"report": "report.html"}}.get(stage, {})
print("2026-01-02 03:04:05,678 INFO tasks: at work on", stage, file=sys.stderr)
line = {"time": "2026-01-02T03:04:05.678+00:00", "level": "WARNING", "logger": "tasks", "message": f"{stage} warns"}
print(json.dumps(line | {"run": "first", "trace_id": "0a" * 16, "exception": "Traceback: no rows"}), file=sys.stderr)
if stage == "gate" and gate > 0.99:
    print("2026-01-02 03:04:05,678 ERROR tasks: accuracy 0.9 is below", gate, file=sys.stderr)
print(json.dumps(result))
sys.exit(3 if stage == "gate" and gate > 0.99 else 0)
"""


def test_stages_run_one_after_the_other(dag: DAG) -> None:
    assert list(dag.task_dict) == [*PIPELINE, "announce", *END]
    for before, after in pairwise(PIPELINE):
        assert dag.get_task(before).downstream_task_ids == {after}
    for name in PIPELINE:
        assert set(STAGES[name].inputs) <= {
            task.task_id for task in dag.get_task(name).get_flat_relatives(upstream=True)
        }


def test_how_the_dag_behaves(dag: DAG) -> None:
    assert dag.schedule is None and dag.max_active_runs == 2
    for name in PIPELINE:
        task = dag.get_task(name)
        assert isinstance(task, ProcessStageOperator) and task.doc_md == STAGES[name].does
    assert dag.get_task("announce").upstream_task_ids == {PIPELINE[-1]}
    track = dag.get_task("track")
    assert track.upstream_task_ids == {"announce"} and track.downstream_task_ids == {"end"}


def test_documentation_explains_the_stages(dag: DAG) -> None:
    assert dag.doc_md and all(stage in dag.doc_md for stage in PIPELINE)


def _run(conf: dict[str, Any], **environment: str) -> tuple[int, str, dict[str, str], dict[str, Any]]:
    """Run the Dag through Airflow's own command: exit code, log, states and XComs of its tasks."""
    done = airflow("dags", "test", "finetune", "--conf", json.dumps(conf), **environment)
    from airflow.models import DagRun, TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        run = session.scalars(select(DagRun).order_by(DagRun.id.desc())).first()
        assert run is not None
        instances = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id))
        states = {instance.task_id: f"{instance.state} {instance.try_number}" for instance in instances}
        rows = session.scalars(select(XComModel).where(XComModel.run_id == run.run_id))
        xcoms = {f"{row.task_id}.{row.key}": row.value for row in rows}
    return done.returncode, done.stdout + done.stderr, states, xcoms


def test_a_run_through_airflow(database: None, interpreter: Interpreter, tmp_path: Path) -> None:
    interpreter(STAGES_STAND_IN)
    transport = json.dumps({"type": "file", "log_file_path": str(tmp_path / "lineage.jsonl"), "append": True})
    conf = {"experiment": "movies", "training.epochs": 1}
    code, log, states, xcoms = _run(conf, AIRFLOW__OPENLINEAGE__TRANSPORT=transport)
    assert code == 0, log
    assert states == dict.fromkeys([*PIPELINE, "announce", *END], "success 1")
    assert "tasks: at work on train" in log and "tasks: train warns" in log and '"message"' not in log
    assert xcoms["train.return_value"]["stage"] == "train"
    assert len({xcoms[f"{stage}.return_value"]["run"] for stage in PIPELINE}) == 1
    assert {xcoms[f"{stage}.return_value"]["try"] for stage in PIPELINE} == {"1"}
    assert Path(xcoms["train.return_value"]["run"]).parent == HOME / "work" / "runs"
    assert re.fullmatch(
        r"/spark-bert/runs/finetune/manual__[^/]+/evaluate/report\.html", xcoms["evaluate._link_report"]
    )
    assert xcoms["validate._link_data_docs"] == ""
    run = Path(xcoms["train.return_value"]["run"]).name
    assert xcoms["announce.return_value"] == {"task": "movie-reviews", "run": run}
    _check_lineage(tmp_path / "lineage.jsonl", run)


def _check_lineage(file: Path, run: str) -> None:
    """Check the events of OpenLineage: each stage that is complete names what it has read and made, and the run."""
    events = [json.loads(line) for line in file.read_text().splitlines()]
    complete = {event["job"]["name"]: event for event in events if event["eventType"] == "COMPLETE"}
    assert {f"finetune.{stage}" for stage in PIPELINE} <= complete.keys()
    for stage in PIPELINE:
        (output,) = complete[f"finetune.{stage}"]["outputs"]
        assert (output["namespace"], output["name"]) == ("file", f"/home/artifacts/{stage}/0123456789abcdef")
        tags = complete[f"finetune.{stage}"]["run"]["facets"]["tags"]["tags"]
        assert {"run": run, "stage": stage}.items() <= {tag["key"]: tag["value"] for tag in tags}.items()
    assert complete["finetune.validate"]["inputs"][0]["name"] == "bundled/movie-reviews"


def test_a_failed_gate_is_red_stops_the_run_and_is_told(
    database: None, interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreter(STAGES_STAND_IN)
    with serving(WebhookServer()) as chat:
        connection = {"conn_type": "generic", "password": f"http://127.0.0.1:{chat.server_address[1]}/s3cr3t"}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_BERT_WEBHOOK", json.dumps(connection))
        code, log, states, xcoms = _run({"experiment": "movies", "gate.accuracy": 0.999})
    assert code == 1
    assert states["gate"] == "failed 1" and states["evaluate"] == "success 1"
    assert states["predict"].startswith("upstream_failed") and states["export"].startswith(("upstream_failed", "None"))
    assert "Refused: gate: accuracy 0.9 is below 0.999" in log
    assert states["track"] == "success 1"  # failed runs are tracked too, and stay failed
    ((_, told),) = chat.posts
    what, why, _, link = told.splitlines()
    assert (what, why) == ("finetune: gate: refused", "gate: accuracy 0.9 is below 0.999")
    assert link.startswith("http://localhost:8080/dags/finetune/runs/manual__") and "/tasks/gate" in link
    assert "s3cr3t" not in log and "spark_bert_smtp" not in log
    assert xcoms["gate.return_value"]["stage"] == "gate"
    assert xcoms["gate._link_verdict"].endswith("/gate/verdict.json")


def test_a_run_stays_a_success_when_its_tracking_fails(database: None, interpreter: Interpreter) -> None:
    interpreter("if stage == 'track':\n    sys.exit(2)\n" + STAGES_STAND_IN)
    code, log, states, _ = _run({"experiment": "movies"})
    assert code == 0, log
    assert states == {**dict.fromkeys([*PIPELINE, "announce", *END], "success 1"), "track": "failed 1"}


def rendered(dag: DAG, stage: str, params: dict[str, Any]) -> list[str]:
    """The command as it stands under Rendered Templates in a run with these params, if it is not refused."""
    operator = dag.get_task(stage)
    assert isinstance(operator, ProcessStageOperator)
    run = SimpleNamespace(dag_id="finetune", run_id="manual__1")
    operator.refusal = None
    operator.render_template_fields({"params": params, "dag_run": run})
    if operator.refusal:
        raise operator.refusal
    return operator.command


def test_a_mistake_across_fields_fails_the_first_task_at_once(dag: DAG) -> None:
    with pytest.raises(BadInput, match=r"training.batch_size 33 is not a multiple of training.ranks 2"):
        rendered(dag, "validate", {"experiment": "movies", "training.batch_size": 33, "training.ranks": 2})


def test_an_experiment_without_a_threshold_fails_before_it_trains(dag: DAG) -> None:
    mrpc = {"experiment": "sst2", "data.task": "MRPC", "data.path": "/data/glue"}
    with pytest.raises(BadInput, match=r"MRPC has no threshold .* set gate.f1"):
        rendered(dag, "validate", mrpc)
    assert rendered(dag, "validate", {**mrpc, "gate.accuracy": 0.7})


def test_the_command_is_the_experiment_and_nothing_else(dag: DAG, interpreter: Interpreter) -> None:
    python = interpreter("")
    command = rendered(dag, "train", {"experiment": "cola", "data.path": "/data/{{ no template }}"})
    assert command[:5] == [str(python), "-m", "tasks", "train", "--experiment"]
    assert load(command[5]) == load("cola", ["data.path='/data/{{ no template }}'"])
    assert command[6] == "--run"
    assert command[7].startswith(str(HOME / "work/runs/finetune-manual__1-"))
