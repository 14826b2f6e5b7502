"""The Kubernetes operator without a cluster: what it makes of the answers of a stand-in for the API server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from include.stages import PIPELINE
from spark_bert.operators.base import Ending
from spark_bert.operators.kubernetes import KubernetesStageOperator
from spark_bert.places import REPOSITORY
from tests.plugins.operators.cluster import Cluster, ended, evicted, running, waiting
from tests.plugins.operators.pods import Store, container, context, operator

LOG = "2026-01-02 03:04:05,678 {} tasks.train: {}"
pytestmark = pytest.mark.usefixtures("home")


def configure(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What KUBECONFIG does: the client reads that only once."""
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster()
    (tmp_path / "kubeconfig").write_text(json.dumps(cluster.kubeconfig))
    configure(tmp_path / "kubeconfig", monkeypatch)
    yield cluster
    cluster.close()


# How it ends: real HTTP and the real client, but a script instead of a kubelet


def test_the_result_is_the_last_json_line(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    warning = LOG.format("WARNING", "one row is empty")
    cluster.log = f'a library\'s chatter\n{warning}\n{{"rows": 3}}\n26/01/02 WARN Utils: Java has the last word\n'
    cluster.states = [waiting("ContainerCreating"), running(), ended(0)]
    ending = operator().run_stage(context())
    assert (ending.code, ending.line) == (0, '{"rows": 3}')
    assert re.search(r"\[warning +\] tasks.train: one row is empty", capsys.readouterr().out)
    (pod,) = cluster.created
    assert container(pod)["args"][0] == "train" and not container(pod)["command"]  # so it is the image's
    assert [name for name, _ in cluster.deleted] == [pod["metadata"]["name"]]


def test_the_result_is_the_tasks_xcom(cluster: Cluster) -> None:
    pushed: dict[str, object] = {}
    values = context()
    values["ti"].xcom_push = lambda key, value: pushed.update({key: value})  # type: ignore[method-assign]
    cluster.log = '{"rows": 3}\n'
    KubernetesStageOperator.execute.__wrapped__(operator(), values)  # type: ignore[attr-defined]
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
        KubernetesStageOperator.execute.__wrapped__(operator(), context())  # type: ignore[attr-defined]
    assert isinstance(error.value, AirflowFailException) is final
    assert len(cluster.deleted) == 1


def test_out_of_memory_is_named_with_the_limit(cluster: Cluster) -> None:
    cluster.states = [running(), ended(137, "OOMKilled")]
    with pytest.raises(AirflowFailException, match=r"train ran out of memory.*limit is 12288 MiB. Raise it, as SPARK"):
        operator().run_stage(context())


def test_an_eviction_is_tried_again(cluster: Cluster) -> None:
    cluster.states = [running(), evicted()]
    reason = "the cluster ended its pod: Evicted, The node was low on resource: memory."
    assert operator().run_stage(context()) == Ending(75, "", reason)


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


def leave_behind(cluster: Cluster, store: Store, generation: int = 2) -> str:
    """A pod that still runs, as a worker that was killed leaves it; its name."""
    made = operator()
    made._describe(context(generation=generation))
    wanted = made.build_pod_request_obj(context(generation=generation))
    made.get_or_create_pod(wanted, context(generation=generation, store=store))
    return str(wanted.metadata.name)


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


def test_a_cleared_task_starts_afresh_when_the_old_pod_has_ended(cluster: Cluster) -> None:
    store = Store()
    old = leave_behind(cluster, store, generation=2)
    operator().run_stage(context(generation=3, store=store))
    assert [pod["metadata"]["labels"]["spark-bert.generation"] for pod in cluster.created] == ["2", "3"]
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
    made = operator()
    made._describe(context())
    made.pod = made.get_or_create_pod(made.build_pod_request_obj(context()), context())
    made.on_kill()
    assert cluster.deleted == [(made.pod.metadata.name, 60)]


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
