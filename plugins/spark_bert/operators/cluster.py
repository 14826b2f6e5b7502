"""The pods of this deployment on a Kubernetes cluster: how to list them, take them over and delete them.

An annotation holds the id of the try that owns the pod. A try that attaches to the pod replaces it by its own id.
"""

from __future__ import annotations

from uuid import UUID

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk.exceptions import AirflowException
from kubernetes.client import CoreV1Api, V1DeleteOptions, V1Pod, V1Preconditions
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from spark_bert.dag.retries import Unreachable
from spark_bert.deployment.places import deployment
from spark_bert.operators.orphans import Workload

_PREFIX = "spark-bert/"
_OWNER = f"{_PREFIX}owner"
_GONE, _CHANGED = 404, 409


def pod_annotations(instance: dict[str, str], owner: UUID) -> dict[str, str]:
    """Return the annotations of a new pod: its task instance and its owner.

    Args:
        instance: the ids of the task instance under the keys dag, run, task and map. They are also labels of the pod,
            but Kubernetes limits the length and the characters of labels.
        owner: the id of the try.
    """
    return {**{f"{_PREFIX}{name}": value for name, value in instance.items()}, _OWNER: str(owner)}


def list_workloads() -> list[Workload]:
    """Return the pods of this deployment in any state.

    Raises:
        Unreachable: if the cluster does not answer.
    """
    # This operator is not run. It is created because it finds the cluster and the namespace like that of a stage.
    operator = KubernetesPodOperator(task_id="pods")
    namespace = operator.hook.get_namespace() or operator._incluster_namespace or "default"
    client = operator.client
    try:
        pods = client.list_namespaced_pod(namespace, label_selector=f"spark-bert.deployment={deployment()}").items
    except HTTPError as error:
        raise Unreachable(f"the cluster does not answer: {error}") from error
    return [_workload(client, pod) for pod in pods]


def _workload(client: CoreV1Api, pod: V1Pod) -> Workload:
    found = pod.metadata.annotations or {}
    dag, run, task, index = (found.get(f"{_PREFIX}{name}", "") for name in ("dag", "run", "task", "map"))
    grace = pod.spec.termination_grace_period_seconds
    return Workload(pod.metadata.name, dag, run, task, index, lambda: delete(client, pod, found.get(_OWNER), grace))


def take_over(client: CoreV1Api, pod: V1Pod, owner: UUID) -> None:
    """Make a try the owner of a pod that an earlier try has left."""
    change = {"metadata": {"annotations": {_OWNER: str(owner)}}}
    client.patch_namespaced_pod(pod.metadata.name, pod.metadata.namespace, change)


def delete(client: CoreV1Api, pod: V1Pod, owner: UUID | str | None, grace: int) -> None:
    """Delete a pod unless it has another owner by now or does not exist any more.

    The request applies only to the version of the pod whose owner was checked. If a try takes the pod over in between,
    the cluster rejects the request, and the owner is checked again.

    Args:
        client: the client of the cluster.
        pod: the pod.
        owner: the id of the try that must own the pod, or None if the pod must not have an owner.
        grace: the seconds that the stage has to end.

    Raises:
        AirflowException: if the pod changes before every attempt.
    """
    name, namespace = pod.metadata.name, pod.metadata.namespace
    for _ in range(10):
        try:
            found = client.read_namespaced_pod(name, namespace).metadata
            if (found.annotations or {}).get(_OWNER) != (owner and str(owner)):
                return
            seen = V1Preconditions(uid=found.uid, resource_version=found.resource_version)
            options = V1DeleteOptions(grace_period_seconds=grace, preconditions=seen)
            client.delete_namespaced_pod(name, namespace, body=options)
            return
        except ApiException as error:
            if error.status == _GONE:
                return
            if error.status != _CHANGED:
                raise
    raise AirflowException(f"the pod {name} could not be deleted, because it changed before each of 10 attempts")
