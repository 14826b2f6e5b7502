"""The pods of this deployment on a Kubernetes cluster: whose they are, and how they are found and ended.

An annotation says which try of a task a pod belongs to. A try that attaches to the pod writes its own id there.
"""

from __future__ import annotations

from uuid import UUID

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk.exceptions import AirflowException
from kubernetes.client import CoreV1Api, V1DeleteOptions, V1Pod, V1Preconditions
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from spark_bert.orphans import Work
from spark_bert.places import deployment
from spark_bert.retries import Unreachable

_PREFIX = "spark-bert/"
_OWNER = f"{_PREFIX}owner"
_GONE, _CHANGED = 404, 409


def notes(instance: dict[str, str], owner: UUID) -> dict[str, str]:
    """A new pod's annotations: its task instance in full, unlike in labels, and the try that it belongs to."""
    return {**{f"{_PREFIX}{name}": value for name, value in instance.items()}, _OWNER: str(owner)}


def at_work() -> list[Work]:
    """The pods of this deployment, whatever their state. Raises Unreachable when the cluster does not answer."""
    operator = KubernetesPodOperator(task_id="pods")  # it finds cluster and namespace as a stage's does
    namespace = operator.hook.get_namespace() or operator._incluster_namespace or "default"
    client = operator.client
    try:
        pods = client.list_namespaced_pod(namespace, label_selector=f"spark-bert.deployment={deployment()}").items
    except HTTPError as error:
        raise Unreachable(f"the cluster does not answer: {error}") from error
    return [_work(client, pod) for pod in pods]


def _work(client: CoreV1Api, pod: V1Pod) -> Work:
    noted = pod.metadata.annotations or {}
    dag, run, task, index = (noted.get(f"{_PREFIX}{name}", "") for name in ("dag", "run", "task", "map"))
    grace = pod.spec.termination_grace_period_seconds
    return Work(pod.metadata.name, dag, run, task, index, lambda: delete(client, pod, noted.get(_OWNER), grace))


def own(client: CoreV1Api, pod: V1Pod, owner: UUID) -> None:
    """Take a pod over from the try before."""
    change = {"metadata": {"annotations": {_OWNER: str(owner)}}}
    client.patch_namespaced_pod(pod.metadata.name, pod.metadata.namespace, change)


def delete(client: CoreV1Api, pod: V1Pod, owner: UUID | str | None, grace: int) -> None:
    """Delete a pod with the grace (seconds), unless it has another owner by now or is gone.

    The deletion holds only for the state of the pod that was looked at: nobody can take the pod over in between.
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
    raise AirflowException(f"the pod {name} changes too often to be deleted")
