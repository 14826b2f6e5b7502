"""The sandbox of a stage's Docker container: its mounts, network, privileges and resource limits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount

from include.experiment import Experiment
from include.secrets import VARIABLE
from spark_bert.deployment.containers import (
    SECRETS,
    drop_folder,
    gpus,
    network,
    prepare_folders,
    readable,
    secrets,
    wants_gpus,
    writable,
)
from spark_bert.deployment.limits import limits


def host_config(stage: str, experiment: Experiment, run: Path) -> dict[str, Any]:
    """Return the arguments of docker's `create_host_config` for the stage's container.

    Args:
        stage: the name of the stage.
        experiment: the experiment of the run.
        run: the folder of the run.

    Raises:
        BadInput: if a setting of the deployment or a path in the experiment is not valid.
    """
    limit = limits(stage)
    return {
        "init": True,  # an init process forwards signals to the stage and reaps orphaned processes
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "network_mode": network(stage, experiment),
        "ipc_mode": "private",
        "mounts": mounts(stage, experiment, run),
        # It has the option exec because Java extracts native libraries into /tmp and loads them from there.
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limit.tmp}"},
        "mem_limit": limit.memory,
        "memswap_limit": limit.memory,  # the sum of memory and swap, so that there is no swap
        "nano_cpus": int(min(limit.cpus, os.cpu_count() or 1) * 1e9),
        "pids_limit": limit.pids,
        "shm_size": limit.shm,
        "device_requests": [DeviceRequest(count=gpus(), capabilities=[["gpu"]])] if wants_gpus(stage) else [],
        "log_config": LogConfig(type="json-file", config={"max-size": "20m", "max-file": "3"}),
    }


def mounts(stage: str, experiment: Experiment, run: Path) -> list[Mount]:
    """Return the mounts of the stage, and create the folders that it writes into.

    The folder with all runs is mounted instead of the run's own folder. The engine follows a link in the path of a
    mount, and a process that may write into the folder of the runs could replace one run's folder by a link to any
    place on the host. A link below a mount is harmless, because it is resolved inside the container.

    Args:
        stage: the name of the stage.
        experiment: the experiment of the run.
        run: the folder of the run.
    """
    prepare_folders(stage, experiment, run)
    runs = run.parent
    write = [runs if folder == run else folder for folder in writable(stage, experiment, run)]
    read = {path: target for path, target in readable(stage, experiment, run).items() if not path.is_relative_to(runs)}
    drop = drop_folder(stage, experiment)
    secret = {name: Path(os.environ[VARIABLE]) / name for name in secrets(stage, experiment)}
    return [
        *(Mount(str(folder), str(folder), type="bind") for folder in write),
        *(Mount(str(target), str(path), type="bind", read_only=path != drop) for path, target in read.items()),
        *(
            Mount(str(SECRETS / name), str(file), type="bind", read_only=True)
            for name, file in secret.items()
            if file.is_file()
        ),
    ]
