"""A stand-in for a Docker engine, and operators and contexts as Airflow makes them, for the Docker runtime's tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from airflow.sdk import Context
from docker.api import APIClient
from docker.errors import APIError, NotFound
from docker.types import HostConfig
from requests import Response

from include.experiment import Experiment
from include.runs import DAG_ID, RUN_ID
from spark_bert.dag.params import from_form
from spark_bert.operators.docker import DockerStageOperator

RUN = "manual__1"


def context(attempt: str = "try-1", max_tries: int = 2, clears: int = 0, **changes: Any) -> Context:
    """What Airflow tells one try of a task; `attempt` is the id of its task instance."""
    instance = {"dag_id": "finetune", "run_id": RUN, "task_id": "train", "map_index": -1, "try_number": 1, **changes}
    values = {
        "ti": SimpleNamespace(id=attempt, max_tries=max_tries, **instance),
        "dag_run": SimpleNamespace(dag_id=instance["dag_id"], run_id=instance["run_id"], clear_number=clears),
    }
    return cast(Context, values)


def operator(stage: str = "train", **keywords: Any) -> DockerStageOperator:
    """The operator, with what rendering gives it."""
    made = DockerStageOperator(task_id=stage, stage=stage, experiment_of=from_form, **keywords)
    made.experiment = Experiment()
    made.command = [stage, "--experiment", "{}"]
    made.variables = {DAG_ID: "finetune", RUN_ID: RUN}
    return made


def answer(status: int, text: str) -> dict[str, Any]:
    """The arguments of docker's errors."""
    response = Response()
    response.status_code = status
    return {"message": text, "response": response, "explanation": text}


class Daemon:
    """Containers by name, as an engine has them, and what was asked for. A stop ends a container at once."""

    def __init__(self) -> None:
        self.containers_: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.created: list[dict[str, Any]] = []

    def attempt(self, where: Context) -> DockerStageOperator:
        """The operator as a try of the task has it, connected to this engine."""
        train = operator()
        train.__dict__["hook"] = SimpleNamespace(api_client=cast(APIClient, self), client_created=True)
        train._identify(where)
        return train

    def start_of(self, where: Context) -> DockerStageOperator:
        """What a try does before it follows the log: attach, or start afresh."""
        train = self.attempt(where)
        if not train._attach():
            train._create(where)
            self.start(train.name)
        return train

    def create_host_config(self, **keywords: Any) -> HostConfig:
        return HostConfig(version="1.41", **keywords)

    def containers(self, all: bool, filters: dict[str, list[str]]) -> list[dict[str, Any]]:
        wanted = dict(label.split("=") for label in filters["label"])
        found = {name: one["Config"]["Labels"] for name, one in self.containers_.items()}
        return [
            {"Names": [f"/{name}"], "Labels": labels}
            for name, labels in found.items()
            if wanted.items() <= labels.items()
        ]

    def inspect_container(self, name: str) -> dict[str, Any]:
        if name not in self.containers_:
            raise NotFound(**answer(404, "No such container"))
        return self.containers_[name]

    def create_container(self, **keywords: Any) -> dict[str, str]:
        self._ask("create", keywords["name"])
        if keywords["name"] in self.containers_:
            raise APIError(**answer(409, "name is in use"))
        self.created.append(keywords)
        config = {"Cmd": keywords["command"], "Image": keywords["image"], "Labels": keywords["labels"]}
        self.containers_[keywords["name"]] = {"Config": config, "State": {}}
        self.set(keywords["name"], "created")
        return {"Id": keywords["name"]}

    def start(self, name: str) -> None:
        self._ask("start", name)
        self.set(name, "running")

    def rename(self, name: str, new: str) -> None:
        self._ask("rename", name)
        self.inspect_container(name)
        self.containers_[new] = self.containers_.pop(name)

    def stop(self, name: str, timeout: int) -> None:
        self._ask(f"stop {timeout}", name)
        self.inspect_container(name)
        self.set(name, "exited", 143)

    def wait(self, name: str, timeout: int) -> None:
        self._ask(f"wait {timeout}", name)
        self.inspect_container(name)
        self.set(name, "exited", 143)

    def remove_container(self, name: str, force: bool) -> None:
        self._ask("remove", name)
        self.inspect_container(name)
        del self.containers_[name]

    def set(self, name: str, status: str, code: int = 0) -> None:
        """Bring a container into a state."""
        state = {"Status": status, "Running": status in ("running", "paused"), "ExitCode": code}
        self.inspect_container(name)["State"] = state

    def _ask(self, call: str, name: str) -> None:
        self.asked.append(f"{call} {name.removeprefix('spark-bert-stage-').split('.', 3)[3]}")
