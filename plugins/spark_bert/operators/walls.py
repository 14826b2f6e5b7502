"""The walls around a stage's container: what it may reach, gain and use up. Everything else is refused to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, LogConfig, Mount

from include.experiment import Experiment
from include.secrets import VARIABLE
from spark_bert.containers import SECRETS, drop_folder, gpus, network, prepare, readable, secrets, wants_gpus, writable
from spark_bert.limits import limits


def host_config(stage: str, experiment: Experiment, run: Path) -> dict[str, Any]:
    """The stage's container as the arguments of docker's `create_host_config`."""
    limit = limits(stage)
    return {
        "init": True,  # passes signals on, and collects orphans
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "network_mode": network(stage, experiment),
        "ipc_mode": "private",
        "mounts": mounts(stage, experiment, run),
        # Java unpacks libraries into /tmp and runs them there.
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limit.tmp}"},
        "mem_limit": limit.memory,
        "memswap_limit": limit.memory,  # of memory and swap together: no swap
        "nano_cpus": int(min(limit.cpus, os.cpu_count() or 1) * 1e9),
        "pids_limit": limit.pids,
        "shm_size": limit.shm,
        "device_requests": [DeviceRequest(count=gpus(), capabilities=[["gpu"]])] if wants_gpus(stage) else [],
        "log_config": LogConfig(type="json-file", config={"max-size": "20m", "max-file": "3"}),
    }


def mounts(stage: str, experiment: Experiment, run: Path) -> list[Mount]:
    """The stage's folders. Those that it writes into are made, and given to the user that it runs as.

    Of the runs it has all. The engine follows a link in the path of what it mounts, and in the place of one run's
    folder Airflow could put a link to anywhere on the host. A link below what is mounted leads nowhere.
    """
    prepare(stage, experiment, run)
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
