"""A stage's spans in Airflow's trace, with a real stage process, a real exporter and a real receiver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException
from opentelemetry import trace
from opentelemetry.sdk.trace import Tracer, TracerProvider

from include.named_experiments import load
from include.runs import DAG_ID, RUN_ID
from spark_bert.dag.params import from_form
from spark_bert.deployment.places import run_folder
from spark_bert.operators.process import ProcessStageOperator
from tests.airflow_home import Interpreter
from tests.plugins.operators import pods
from tests.plugins.operators.conftest import execute
from tests.plugins.operators.daemon import RUN, Daemon, context
from tests.plugins.receivers import TraceServer, serving
from tests.spans import attributes, read_spans

#: Stands in for a stage: it records spans as the stages do, and may fail.
STAGE = """
from pathlib import Path
from include.tracing import Origin, recording, span
folder = Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
with recording(folder / "traces/train.jsonl", Origin.of_stage(folder, "train"), "train"):
    with span("load", rows=3):
        pass
    if os.path.exists(sys.argv[2]):
        sys.exit(75)
print("{}")
"""
FAILS = "/"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path / "work"))
    return tmp_path / "work"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceServer]:
    with serving(TraceServer()) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def tracer() -> Tracer:
    """Airflow's, where it records traces."""
    found = TracerProvider().get_tracer("airflow")
    assert isinstance(found, Tracer)
    return found


def try_stage(python: Path, told: Context, fails: bool = False, run: str = RUN) -> None:
    task = ProcessStageOperator(task_id="train", stage="train", experiment_of=from_form)
    task.experiment = load("movies")
    folder = run_folder("finetune", run)
    task.variables = {DAG_ID: "finetune", RUN_ID: RUN}
    task.command = [str(python), "train", FAILS if fails else "", str(folder)]
    execute(task, told)


def test_spans_go_where_airflows_go_below_the_span_of_the_task(
    interpreter: Interpreter, home: Path, collector: TraceServer, tracer: Tracer
) -> None:
    with tracer.start_as_current_span("worker.train") as task:
        try_stage(interpreter(STAGE), context())
    load, train = collector.spans
    assert (load["name"], train["name"]) == ("load", "train")
    assert train["parentSpanId"] == trace.format_span_id(task.get_span_context().span_id)
    assert load["traceId"] == train["traceId"] == trace.format_trace_id(task.get_span_context().trace_id)
    assert load["parentSpanId"] == train["spanId"]
    written = read_spans(run_folder("finetune", RUN) / "traces/train.jsonl")
    for key in ("traceId", "spanId", "startTimeUnixNano", "endTimeUnixNano"):
        assert [span[key] for span in written] == [load[key], train[key]]
    assert attributes(load) == {"rows": 3}
    assert attributes(train["resource"]).items() >= {
        "service.name": "spark-bert", "stage": "train", "dag_id": "finetune", "run_id": RUN, "try": "1",
    }.items()  # fmt: skip


def test_each_try_exports_its_own_spans_also_when_it_fails(
    interpreter: Interpreter, home: Path, collector: TraceServer, tracer: Tracer
) -> None:
    python = interpreter(STAGE)
    with tracer.start_as_current_span("worker.train"), pytest.raises(AirflowException):
        try_stage(python, context(), fails=True)
    with tracer.start_as_current_span("worker.train"):
        try_stage(python, context(try_number=2))
    failed, done = collector.spans[1], collector.spans[3]
    assert [span["name"] for span in collector.spans] == ["load", "train"] * 2
    assert failed["status"]["message"] == "SystemExit(75)" and done["status"] == {}
    assert [attributes(span["resource"])["try"] for span in (failed, done)] == ["1", "2"]


def test_without_airflows_tracing_a_run_has_the_trace_id_that_airflow_gave_it(
    interpreter: Interpreter, home: Path, collector: TraceServer
) -> None:
    carrier = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
    try_stage(interpreter(STAGE), context(context_carrier=carrier))
    _, train = read_spans(run_folder("finetune", RUN) / "traces/train.jsonl")
    assert (train["traceId"], train["parentSpanId"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert collector.spans == []


@pytest.mark.parametrize("damage", ["not JSON", "[]", '{"resourceSpans": [{"resource": 1}]}', "{}"])
def test_what_cannot_be_exported_fails_nothing(
    damage: str, interpreter: Interpreter, home: Path, collector: TraceServer, tracer: Tracer
) -> None:
    body = STAGE.replace('print("{}")', f"(folder / 'traces/train.jsonl').open('a').write({damage!r})\nprint('{{}}')")
    with tracer.start_as_current_span("worker.train"):
        try_stage(interpreter(body), context())
    assert [span["name"] for span in collector.spans] == ["load", "train"]


def test_a_collector_that_is_down_fails_nothing(
    interpreter: Interpreter, home: Path, tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp_proto_http")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with tracer.start_as_current_span("worker.train"):
        try_stage(interpreter(STAGE), context())


def test_containers_and_pods_are_told_their_span_too(home: Path) -> None:
    told = {"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "AIRFLOW_CTX_TRY_NUMBER": "2"}
    daemon = Daemon()
    train = daemon.attempt(context())
    train.variables = told
    train._create(context())
    assert daemon.created[0]["environment"].items() >= told.items()
    pod = pods.operator()
    pod.variables = told
    pod._configure_pod(pods.context())
    variables: list[Any] = list(pod.env_vars)
    assert {variable.name: variable.value for variable in variables}.items() >= told.items()


def test_an_index_of_a_mapped_task_exports_the_spans_of_its_own_run(
    interpreter: Interpreter, home: Path, collector: TraceServer, tracer: Tracer
) -> None:
    with tracer.start_as_current_span("worker.train"):
        try_stage(interpreter(STAGE), context(map_index=3), run=f"{RUN}[3]")
    runs = {attributes(span["resource"])["run"] for span in collector.spans}
    assert runs == {run_folder("finetune", f"{RUN}[3]").name}
