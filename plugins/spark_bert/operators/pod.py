"""The sandbox of a stage's pod: its volumes, its resources and its security context."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePath
from typing import Any

from kubernetes.client import models as k8s

from include.experiment import Experiment
from include.secrets import VARIABLE
from include.stages import BadInput
from spark_bert.deployment.containers import (
    SECRETS,
    drop_folder,
    environment,
    gpus,
    image,
    readable,
    secrets,
    user,
    wants_gpus,
    writable,
)
from spark_bert.deployment.limits import limits
from spark_bert.deployment.places import cache, home

#: The variable in which a deployment maps folders to the PersistentVolumeClaims that hold them, as JSON:
#: {"/data": "glue"}.
CLAIMS = "SPARK_BERT_CLAIMS"
#: Executors connect to the stage, which is the Spark driver, at this address. The name of a pod cannot be resolved.
_ADDRESS = k8s.V1EnvVar("SPARK_LOCAL_HOSTNAME", value_from={"fieldRef": {"fieldPath": "status.podIP"}})


def pod_attributes(stage: str, experiment: Experiment, run: Path) -> dict[str, Any]:
    """Return the attributes of KubernetesPodOperator that describe the stage's pod.

    Args:
        stage: the name of the stage.
        experiment: the experiment of the run.
        run: the folder of the run.

    Raises:
        BadInput: if a setting of the deployment is not valid, or if no claim holds a folder that the stage needs.
    """
    mounts, volumes = _folders(stage, experiment, run), _scratch(stage)
    claimed = sorted({mount.name for mount in mounts})
    volumes += [k8s.V1Volume(name=name, persistent_volume_claim={"claimName": name}) for name in claimed]
    mounts += [k8s.V1VolumeMount(name="tmp", mount_path="/tmp"), k8s.V1VolumeMount(name="shm", mount_path="/dev/shm")]
    keys = secrets(stage, experiment)
    if keys:
        items = [{"key": key, "path": key} for key in keys]
        secret = {"secretName": os.environ[VARIABLE], "defaultMode": 0o440, "items": items, "optional": True}
        volumes.append(k8s.V1Volume(name="secrets", secret=secret))
        mounts.append(k8s.V1VolumeMount(name="secrets", mount_path=str(SECRETS), read_only=True))
    return {
        "image": image(stage),
        "env_vars": [*(k8s.V1EnvVar(*pair) for pair in environment(stage, experiment).items()), _ADDRESS],
        "volumes": volumes,
        "volume_mounts": mounts,
        "container_resources": _resources(stage),
        "security_context": _identity(),
        "container_security_context": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _identity() -> dict[str, Any]:
    uid, gid = user()
    return {
        "runAsNonRoot": True,
        "runAsUser": uid,
        "runAsGroup": gid,
        "fsGroup": gid,  # gives the group access to the Secret and to new volumes
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _resources(stage: str) -> k8s.V1ResourceRequirements:
    """Return the stage's resources. It requests all its memory, but at most one processor, so that it fits any node."""
    limit = limits(stage)
    memory = {"memory": _quantity(limit.memory)}
    most = {**memory, "cpu": f"{limit.cpus:g}"}
    if wants_gpus(stage):
        if gpus() < 0:
            raise BadInput("SPARK_BERT_GPUS=all is not possible on Kubernetes: write the number of GPUs per training")
        most["nvidia.com/gpu"] = str(gpus())
    return k8s.V1ResourceRequirements(limits=most, requests={**memory, "cpu": f"{min(limit.cpus, 1):g}"})


def _scratch(stage: str) -> list[k8s.V1Volume]:
    limit = limits(stage)
    in_memory = {"medium": "Memory", "sizeLimit": _quantity(limit.shm)}
    return [
        k8s.V1Volume(name="tmp", empty_dir={"sizeLimit": _quantity(limit.tmp)}),
        k8s.V1Volume(name="shm", empty_dir=in_memory),
    ]


def _folders(stage: str, experiment: Experiment, run: Path) -> list[k8s.V1VolumeMount]:
    """Return one mount per folder of the stage, limited to the folder's subpath of the volume."""
    write, read = writable(stage, experiment, run), readable(stage, experiment, run)
    drop = drop_folder(stage, experiment)
    return [
        *(_mount(folder, folder, read_only=False) for folder in write),
        *(_mount(path, target, read_only=path != drop) for path, target in read.items()),
    ]


def _mount(path: Path, target: PurePath, *, read_only: bool) -> k8s.V1VolumeMount:
    holding = {root: claim for root, claim in _claims().items() if path.is_relative_to(root)}
    if not holding:
        raise BadInput(
            f"{path} lies on no volume: name the claim that holds it, "
            f"""for example with {CLAIMS}='{{"{home()}": "spark-bert-home"}}'"""
        )
    root = max(holding, key=lambda root: len(root.parts))
    below = str(path.relative_to(root))
    sub_path = None if below == "." else below
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
    shift, unit = next(
        (shift, unit) for shift, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")) if size % (1 << shift) == 0
    )
    return f"{size >> shift}{unit}"
