"""The Kubernetes operator without a cluster: what it makes of the answers of a stand-in for the API server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from urllib3.exceptions import HTTPError

from include.stages import PIPELINE
from spark_bert.deployment.places import REPOSITORY
from spark_bert.operators.base import Outcome
from spark_bert.operators.failures import Interrupted, Unreachable
from spark_bert.operators.kubernetes import KubernetesStageOperator
from tests.plugins.operators.cluster import Cluster, ended, evicted, running, waiting
from tests.plugins.operators.conftest import configure, execute
from tests.plugins.operators.pods import Store, container, context, operator

LOG = "2026-01-02 03:04:05,678 {} tasks.stages.pipeline.train: {}"
pytestmark = pytest.mark.usefixtures("home")


# How it ends: real HTTP and the real client, but a script instead of a kubelet


def test_the_result_is_the_last_json_line(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    warning = LOG.format("WARNING", "one row is empty")
    cluster.log = f'a library\'s chatter\n{warning}\n{{"rows": 3}}\n26/01/02 WARN Utils: Java has the last word\n'
    cluster.states = [waiting("ContainerCreating"), running(), ended(0)]
    ending = operator().run_stage(context())
    assert (ending.code, ending.line) == (0, '{"rows": 3}')
    assert re.search(r"\[warning +\] tasks.stages.pipeline.train: one row is empty", capsys.readouterr().out)
    (pod,) = cluster.created
    assert container(pod)["args"][0] == "train" and not container(pod)["command"]  # so it is the image's
    assert [name for name, _ in cluster.deleted] == [pod["metadata"]["name"]]


def test_the_result_is_the_tasks_xcom(cluster: Cluster) -> None:
    pushed: dict[str, object] = {}
    values = context()
    values["ti"].xcom_push = lambda key, value: pushed.update({key: value})  # type: ignore[method-assign]
    cluster.log = '{"rows": 3}\n'
    execute(operator(), values)
    assert pushed["return_value"] == {"rows": 3}


@pytest.mark.parametrize(
    ("code", "message", "final"),
    [
        (2, "train: no such file: a.tsv", True),
        (3, "train: no such file: a.tsv", True),
        (75, r"train ended with exit code 75 \(transient\), another try may succeed: no such file", False),
        (143, r"train ended with exit code 143 \(stopped\), another try", False),
        (1, "train crashed with exit code 1, another try", False),
    ],
)
def test_exit_codes_are_the_policy(code: int, message: str, final: bool, cluster: Cluster) -> None:
    cluster.log, cluster.states = LOG.format("ERROR", "no such file: a.tsv") + "\ngoodbye\n", [running(), ended(code)]
    with pytest.raises(AirflowException, match=message) as error:
        execute(operator(), context())
    assert isinstance(error.value, AirflowFailException) is final
    assert len(cluster.deleted) == 1


def test_out_of_memory_is_named_with_the_limit(cluster: Cluster) -> None:
    cluster.states = [running(), ended(137, "OOMKilled")]
    with pytest.raises(AirflowFailException, match=r"train ran out of memory.*limit is 12288 MiB. Raise it, for exa"):
        operator().run_stage(context())


def test_an_eviction_is_tried_again(cluster: Cluster) -> None:
    cluster.states = [running(), evicted()]
    reason = "the cluster ended its pod: Evicted, The node was low on resource: memory."
    assert operator().run_stage(context()) == Outcome(75, "", reason)


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName"])
def test_a_missing_image_is_named(reason: str, cluster: Cluster) -> None:
    cluster.states = [waiting(reason, "manifest unknown")]
    with pytest.raises(AirflowFailException, match=f"no node can get the image spark-bert/train:latest: .*{reason}"):
        operator().run_stage(context())
    assert len(cluster.deleted) == 1


def test_a_pod_that_no_node_takes_is_tried_again(cluster: Cluster) -> None:
    cluster.states = [waiting("ContainerCreating")]
    slow = operator()
    slow.startup_timeout_seconds = 0
    with pytest.raises(AirflowException, match=r"no node has started train, another try.*12288 MiB") as error:
        slow.run_stage(context())
    assert not isinstance(error.value, AirflowFailException)


@pytest.mark.parametrize(
    ("status", "message", "final"),
    [
        (403, 'pods is forbidden: User "airflow" cannot create resource "pods"', True),
        (403, "pods is forbidden: exceeded quota: compute", False),
        (422, "Pod is invalid", True),
        (410, "gone", False),
        (404, "the pod was deleted while the stage ran", False),
    ],
)
def test_what_the_cluster_refuses(status: int, message: str, final: bool, cluster: Cluster) -> None:
    cluster.refusal = status, message
    with pytest.raises(AirflowException, match=message) as error:
        operator().run_stage(context())
    assert isinstance(error.value, AirflowFailException) is final


def test_a_cluster_that_does_not_answer_is_tried_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.close()
    with pytest.raises(AirflowException, match="the cluster does not answer, another try may succeed") as error:
        operator().run_stage(context())
    assert not isinstance(error.value, AirflowFailException)


def test_no_cluster_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configure(tmp_path / "nowhere", monkeypatch)
    with pytest.raises(AirflowFailException, match="no cluster is configured"):
        operator().run_stage(context())


# Which pod a try attaches to


def leave_behind(cluster: Cluster, store: Store) -> str:
    """A pod that still runs, as a worker that was killed leaves it; its name."""
    return name_of(start(context(store=store)))


def name_of(made: KubernetesStageOperator) -> str:
    assert made.pod is not None
    return str(made.pod.metadata.name)


def start(where: Context) -> KubernetesStageOperator:
    """What a try does before it follows the log: attach, or start afresh."""
    made = operator()
    made._configure_pod(where)
    made.pod = made.get_or_create_pod(made.build_pod_request_obj(where), where)
    return made


def test_a_retry_attaches_to_the_pod_that_runs(cluster: Cluster) -> None:
    store = Store()
    left = leave_behind(cluster, store)
    cluster.log = '{"rows": 3}\n'
    assert operator().run_stage(context(store=store)).line == '{"rows": 3}'
    assert [pod["metadata"]["name"] for pod in cluster.created] == [left] == [name for name, _ in cluster.deleted]


def test_a_retry_finds_the_pod_by_its_labels_too(cluster: Cluster) -> None:
    """The worker died between starting the pod and storing its name."""
    leave_behind(cluster, Store())
    operator().run_stage(context(store=Store()))
    assert len(cluster.created) == 1


@pytest.mark.parametrize("cleared", [{"max_tries": 5}, {"clears": 1}])
def test_a_cleared_task_starts_afresh_when_the_old_pod_has_ended(cleared: dict[str, Any], cluster: Cluster) -> None:
    """A clear of a task that runs leaves its number of tries as it is; the worker may be lost, and stop nothing."""
    store = Store()
    old = leave_behind(cluster, store)
    operator().run_stage(context(store=store, **cleared))
    generations = [pod["metadata"]["labels"]["spark-bert.generation"] for pod in cluster.created]
    assert generations == ["2.0", f"{cleared.get('max_tries', 2)}.{cleared.get('clears', 0)}"]
    assert cluster.deleted[0][0] == old and len(cluster.deleted) == 2


@pytest.mark.parametrize("change", ["image", "args", "deleted"])
def test_a_pod_at_other_work_is_none_to_attach_to(change: str, cluster: Cluster) -> None:
    store = Store()
    pod = cluster.pods[leave_behind(cluster, store)]
    if change == "deleted":
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    else:
        pod["spec"]["containers"][0][change] = {"image": "spark-bert/train:old", "args": ["gate"]}[change]
    operator().run_stage(context(store=store))
    assert len(cluster.created) == 2


def test_another_task_is_left_alone(cluster: Cluster) -> None:
    left = leave_behind(cluster, Store())
    operator("gate").run_stage(context("gate"))
    assert left in cluster.pods


def test_killing_the_task_deletes_the_pod_with_time_to_save(cluster: Cluster) -> None:
    made = start(context())
    made.on_kill()
    assert cluster.deleted == [(name_of(made), 60)]


def test_a_try_that_has_lost_its_pod_deletes_nothing(cluster: Cluster) -> None:
    """The SIGTERM for the first try comes late: the second one is at work by then."""
    store = Store()
    cluster.states = [running()]
    first, second = start(context(store=store)), start(context(store=store, attempt="try-2"))
    assert len(cluster.created) == 1
    first.on_kill()
    assert cluster.deleted == []
    second.on_kill()
    assert len(cluster.deleted) == 1


def test_a_pod_that_is_taken_over_in_the_middle_of_a_stop_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    cluster.states = [running()]
    first = start(context(store=store))
    delete = first.client.delete_namespaced_pod

    def late(*arguments: Any, **keywords: Any) -> object:
        if len(cluster.pods) == 1 and not taken:
            taken.append(start(context(store=store, attempt="try-2")))
        return delete(*arguments, **keywords)

    taken: list[KubernetesStageOperator] = []
    monkeypatch.setattr(first.client, "delete_namespaced_pod", late)
    first.on_kill()
    assert taken and cluster.deleted == []


def test_a_deployment_may_keep_the_pod_when_its_worker_is_shut_down(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_BERT_ON_SHUTDOWN", "keep")
    made = start(context())
    for state, kept in (("running", True), ("restarting", False)):
        made.ti = SimpleNamespace(**vars(made.ti) | {"get_task_states": states(state)})  # type: ignore[assignment]
        with pytest.raises(Interrupted) if kept else nullcontext():
            made.on_kill()
        assert bool(cluster.pods) is kept


def states(state: str) -> Any:
    """Airflow's answer about the task."""
    return lambda dag_id, map_index, task_ids, run_ids: {run_ids[0]: {"train": state}}


def test_a_pod_outlives_an_api_server_that_does_not_answer(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    train = operator()
    monkeypatch.setattr(train, "await_pod_completion", lost)
    with pytest.raises(Unreachable, match="the cluster does not answer"):
        train.run_stage(context())
    assert cluster.deleted == []


def lost(*_: object, **__: object) -> None:
    raise HTTPError("Connection refused")


def test_a_result_counts_though_its_pod_cannot_be_deleted(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    train = operator()
    monkeypatch.setattr(train.client, "delete_namespaced_pod", lost)
    cluster.log = '{"rows": 3}\n'
    assert train.run_stage(context()).line == '{"rows": 3}'
    assert len(cluster.pods) == 1


PROGRAM = """
import json
from dags.finetune import dag
run = dag.test(run_conf={"experiment": "movies"})
print(json.dumps({ti.task_id: [ti.state, ti.xcom_pull(task_ids=ti.task_id)] for ti in run.get_task_instances()}))
"""


def test_the_dag_runs_on_it(cluster: Cluster, tmp_path: Path, database: None) -> None:
    """In Airflow's own task runner, with its context and its state store."""
    cluster.log = '{"artifact": "/store/stage/0123456789abcdef", "files": {}}\n'
    environment = {"SPARK_BERT_RUNTIME": "kubernetes", "KUBECONFIG": str(tmp_path / "kubeconfig")}
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "plugins")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment, "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    tasks = json.loads(done.stdout.splitlines()[-1])
    assert {stage: tasks[stage] for stage in PIPELINE} == {
        stage: ["success", json.loads(cluster.log)] for stage in PIPELINE
    }
    assert [container(pod)["args"][0] for pod in cluster.created] == [*PIPELINE, "track"] and cluster.pods == {}
