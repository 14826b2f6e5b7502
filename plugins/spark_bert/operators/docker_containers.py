"""The containers of stages on a Docker engine: their sandbox, and how they are listed, stopped and removed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from docker.api import APIClient
from docker.errors import APIError, DockerException, NotFound
from docker.types import DeviceRequest, LogConfig, Mount
from docker.utils import kwargs_from_env
from requests import RequestException

from include.experiment import Experiment
from include.secrets import VARIABLE
from spark_bert.deployment import containers
from spark_bert.deployment.limits import limits
from spark_bert.deployment.places import deployment
from spark_bert.operators.base import GRACE
from spark_bert.operators.failures import Unreachable
from spark_bert.operators.stopping import Workload

#: The end of the name of a container that is being stopped. Such a container is never taken over again.
STOPPING = ".ending"
CONFLICT = 409  # an HTTP status


def name_prefix() -> str:
    """Return the beginning of the names of this deployment's containers, which no other deployment uses."""
    return f"spark-bert-stage-{deployment()}."


def list_workloads() -> list[Workload]:
    """Return the containers of this deployment in any state. Raise Unreachable if the engine does not answer."""
    try:
        cli = APIClient(**kwargs_from_env(), version="auto")
        return _workloads(cli)
    except (DockerException, RequestException) as error:
        raise Unreachable(f"no Docker daemon answers: {error}") from error


def container_names(cli: APIClient) -> list[str]:
    """Return the names of this deployment's containers."""
    return [workload.name for workload in _workloads(cli)]


def _workloads(cli: APIClient) -> list[Workload]:
    found = cli.containers(all=True, filters={"label": [f"spark-bert.deployment={deployment()}"]})
    # A container that is being removed has no name.
    return [_workload(cli, container) for container in found if container["Names"]]


def _workload(cli: APIClient, container: dict[str, Any]) -> Workload:
    name = str(container["Names"][0]).removeprefix("/")
    dag, run, task, index = (container["Labels"].get(f"spark-bert.{key}", "") for key in ("dag", "run", "task", "map"))
    return Workload(name, dag, run, task, index, lambda: stop_and_remove(cli, name, GRACE))


def stop_and_remove(cli: APIClient, name: str, grace: int) -> None:
    """Stop a container and remove it, unless it has been renamed since its name was listed.

    Once its name ends with STOPPING, no try attaches to it, and no other caller sends it a signal, because a training
    would abort its checkpoint on a second SIGTERM. Others wait for its end, for at most twice the grace in seconds.
    """
    stopping = name.removesuffix(STOPPING) + STOPPING
    with suppress(NotFound):
        if name == stopping:
            with suppress(RequestException):
                cli.wait(stopping, timeout=2 * grace)
        else:
            cli.rename(name, stopping)
            cli.stop(stopping, timeout=grace)
        remove(cli, stopping)


def remove(cli: APIClient, name: str) -> None:
    """Remove a container in any state, unless another process has removed it or is removing it."""
    try:
        cli.remove_container(name, force=True)
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != CONFLICT:
            raise


def host_config(stage: str, experiment: Experiment, run: Path) -> dict[str, Any]:
    """Return the sandbox of a stage's container, as the arguments of docker's `create_host_config`."""
    limit, gpus = limits(stage), containers.gpus(stage)
    return {
        "init": True,  # an init process forwards signals to the stage and reaps orphaned processes
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "network_mode": containers.network(stage, experiment),
        "ipc_mode": "private",
        "mounts": _mounts(stage, experiment, run),
        # It has the option exec because Java extracts native libraries into /tmp and loads them from there.
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limit.tmp}"},
        "mem_limit": limit.memory,
        "memswap_limit": limit.memory,  # the sum of memory and swap, so that there is no swap
        "nano_cpus": int(min(limit.cpus, os.cpu_count() or 1) * 1e9),
        "pids_limit": limit.pids,
        "shm_size": limit.shm,
        "device_requests": [DeviceRequest(count=gpus, capabilities=[["gpu"]])] if gpus else [],
        "log_config": LogConfig(type="json-file", config={"max-size": "20m", "max-file": "3"}),
    }


def _mounts(stage: str, experiment: Experiment, run: Path) -> list[Mount]:
    """Return the mounts of the stage, and create the folders that it writes into.

    All runs are mounted, not the run's own folder: the engine would follow a link that another stage has put in its
    place. A link below a mount is harmless, because it is resolved inside the container.
    """
    containers.prepare_folders(stage, experiment, run)
    runs = run.parent
    write = [runs if folder == run else folder for folder in containers.writable(stage, experiment, run)]
    read = containers.readable(stage, experiment, run).items()
    drop = containers.drop_folder(stage, experiment)
    secrets = [Path(os.environ[VARIABLE], name) for name in containers.secrets(stage, experiment)]
    mounts: list[tuple[Path, PurePath, bool]] = [(folder, folder, False) for folder in write]
    mounts += [(path, target, path != drop) for path, target in read if not path.is_relative_to(runs)]
    mounts += [(file, containers.SECRETS / file.name, True) for file in secrets if file.is_file()]
    return [Mount(str(to), str(path), type="bind", read_only=read_only) for path, to, read_only in mounts]
