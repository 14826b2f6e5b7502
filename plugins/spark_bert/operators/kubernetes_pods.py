"""The pods of stages on a Kubernetes cluster: their sandbox, and how they are listed, taken over and deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk.exceptions import AirflowException
from kubernetes.client import CoreV1Api, V1DeleteOptions, V1Pod, V1Preconditions
from kubernetes.client import models as k8s
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from include.experiment import Experiment
from include.secrets import VARIABLE
from include.stages import BadInput
from spark_bert.deployment import containers
from spark_bert.deployment.limits import limits
from spark_bert.deployment.places import cache, deployment, home
from spark_bert.operators.failures import Unreachable
from spark_bert.operators.stopping import Workload

_PREFIX = "spark-bert/"
_OWNER = f"{_PREFIX}owner"  # the annotation with the id of the try that owns the pod
GONE, _CHANGED = 404, 409  # HTTP statuses
#: The variable in which a deployment maps folders to the PersistentVolumeClaims that hold them, as JSON:
#: {"/data": "glue"}.
CLAIMS = "SPARK_BERT_CLAIMS"
#: Executors connect to the stage, which is the Spark driver, at this address. The name of a pod cannot be resolved.
_ADDRESS = k8s.V1EnvVar("SPARK_LOCAL_HOSTNAME", value_from={"fieldRef": {"fieldPath": "status.podIP"}})


def pod_annotations(instance: dict[str, str], owner: UUID) -> dict[str, str]:
    """Return the annotations of a new pod: the ids of its task instance, which labels cannot hold, and its owner."""
    return {**{f"{_PREFIX}{name}": value for name, value in instance.items()}, _OWNER: str(owner)}


def list_workloads() -> list[Workload]:
    """Return the pods of this deployment in any state. Raise Unreachable if the cluster does not answer."""
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


def delete(client: CoreV1Api, pod: V1Pod, owner: str | None, grace: int) -> None:
    """Delete a pod with a grace in seconds, unless it is gone or has another owner by now.

    If a try takes the pod over after the check of its owner, the cluster rejects the request, and it is checked again.
    """
    name, namespace = pod.metadata.name, pod.metadata.namespace
    for _ in range(10):
        try:
            found = client.read_namespaced_pod(name, namespace).metadata
            if (found.annotations or {}).get(_OWNER) != owner:
                return
            seen = V1Preconditions(uid=found.uid, resource_version=found.resource_version)
            options = V1DeleteOptions(grace_period_seconds=grace, preconditions=seen)
            client.delete_namespaced_pod(name, namespace, body=options)
            return
        except ApiException as error:
            if error.status == GONE:
                return
            if error.status != _CHANGED:
                raise
    raise AirflowException(f"the pod {name} could not be deleted, because it changed before each of 10 attempts")


def pod_attributes(stage: str, experiment: Experiment, run: Path) -> dict[str, Any]:
    """Return the sandbox of a stage's pod, as attributes of KubernetesPodOperator."""
    drop, limit = containers.drop_folder(stage, experiment), limits(stage)
    mounts = [_mount(folder, folder, read_only=False) for folder in containers.writable(stage, experiment, run)]
    for path, target in containers.readable(stage, experiment, run).items():
        mounts.append(_mount(path, target, read_only=path != drop))
    scratch = {
        "tmp": {"sizeLimit": _quantity(limit.tmp)},
        "shm": {"medium": "Memory", "sizeLimit": _quantity(limit.shm)},
    }
    volumes = [k8s.V1Volume(name=name, empty_dir=content) for name, content in scratch.items()]
    claimed = sorted({mount.name for mount in mounts})
    volumes += [k8s.V1Volume(name=name, persistent_volume_claim={"claimName": name}) for name in claimed]
    mounts += [k8s.V1VolumeMount(name="tmp", mount_path="/tmp"), k8s.V1VolumeMount(name="shm", mount_path="/dev/shm")]
    uid, gid = containers.user()
    if keys := containers.secrets(stage, experiment):
        items = [{"key": key, "path": key} for key in keys]
        secret = {"secretName": os.environ[VARIABLE], "defaultMode": 0o440, "items": items, "optional": True}
        volumes.append(k8s.V1Volume(name="secrets", secret=secret))
        mounts.append(k8s.V1VolumeMount(name="secrets", mount_path=str(containers.SECRETS), read_only=True))
    return {
        "env_vars": [*(k8s.V1EnvVar(*pair) for pair in containers.environment(stage, experiment).items()), _ADDRESS],
        "volumes": volumes,
        "volume_mounts": mounts,
        "container_resources": _resources(stage),
        "security_context": {
            "runAsNonRoot": True,
            "runAsUser": uid,
            "runAsGroup": gid,
            "fsGroup": gid,  # gives the group access to the Secret and to new volumes
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "container_security_context": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _resources(stage: str) -> k8s.V1ResourceRequirements:
    """Return the stage's resources. It requests all its memory, but at most one processor, so that it fits any node."""
    limit = limits(stage)
    memory = {"memory": _quantity(limit.memory)}
    most = {**memory, "cpu": f"{limit.cpus:g}"}
    gpus = containers.gpus(stage)
    if gpus < 0:
        raise BadInput("SPARK_BERT_GPUS=all is not possible on Kubernetes: write the number of GPUs per training")
    if gpus:
        most["nvidia.com/gpu"] = str(gpus)
    return k8s.V1ResourceRequirements(limits=most, requests={**memory, "cpu": f"{min(limit.cpus, 1):g}"})


def _mount(path: Path, target: PurePath, *, read_only: bool) -> k8s.V1VolumeMount:
    """Return the mount of a folder, limited to its subpath of the volume."""
    holding = {root: claim for root, claim in _claims().items() if path.is_relative_to(root)}
    if not holding:
        raise BadInput(
            f"{path} lies on no volume: name the claim that holds it, "
            f"""for example with {CLAIMS}='{{"{home()}": "spark-bert-home"}}'"""
        )
    root = max(holding, key=lambda root: len(root.parts))
    sub_path = str(path.relative_to(root)) if path != root else None
    return k8s.V1VolumeMount(name=holding[root], mount_path=str(target), sub_path=sub_path, read_only=read_only)


def _claims() -> dict[Path, str]:
    text = os.environ.get(CLAIMS)
    if not text:
        return {home(): "spark-bert-home", cache(): "spark-bert-cache"}
    try:
        return {Path(folder): str(claim) for folder, claim in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise BadInput(f"""{CLAIMS} is not a JSON object: write it as {CLAIMS}='{{"/data": "glue"}}'""") from error


def _quantity(size: int) -> str:
    """Return a size in bytes as Kubernetes writes it, for example 12Gi."""
    units = ((30, "Gi"), (20, "Mi"), (10, "Ki"))
    shift, unit = next((shift, unit) for shift, unit in units if size % (1 << shift) == 0)
    return f"{size >> shift}{unit}"
