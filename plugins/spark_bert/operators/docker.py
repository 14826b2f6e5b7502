"""The runtime `docker`: runs a stage in a sandboxed container that can outlive its worker."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airflow.providers.docker.operators.docker import DockerOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.types import RuntimeTaskInstanceProtocol
from docker.api import APIClient
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from requests import RequestException

from spark_bert.deployment.containers import environment, image, user
from spark_bert.deployment.limits import limits, out_of_memory
from spark_bert.deployment.places import deployment, this_run
from spark_bert.operators import docker_containers as containers
from spark_bert.operators.base import Outcome, StageOperator
from spark_bert.operators.failures import Interrupted, Unreachable, generation
from spark_bert.operators.stage_log import forward_log
from spark_bert.operators.stopping import keeps_containers, outlives_worker


class DockerStageOperator(StageOperator, DockerOperator):  # type: ignore[misc]
    """Runs a stage in a container. If the worker is lost, the next try attaches to the container.

    The name of a container identifies the task instance and the try that owns it, and a try uses only the name of its
    own container. A try that attaches to a container renames it, and a try that stops a container first gives it a name
    to which no try attaches. Therefore a try that is no longer the owner cannot stop or remove the container, and no
    try attaches to a container that is being stopped. The labels identify the work that the container does.
    """

    template_fields: Sequence[str] = ("command", "image")

    instance: str  # the beginning of the names of all containers of this task instance
    name: str  # the name of this try's container
    labels: dict[str, str]
    ti: RuntimeTaskInstanceProtocol

    def __init__(self, *, stage: str, **kwargs: Any) -> None:
        limits(stage), keeps_containers(), deployment()  # so that a mistake in them keeps the Dag from loading
        super().__init__(stage=stage, image=image(stage), mount_tmp_dir=False, **kwargs)

    @property
    def cli(self) -> APIClient:
        """The client of the Docker daemon."""
        try:
            return super().cli
        except AirflowException as error:
            raise self._unreachable() from error

    def run_stage(self, context: Context) -> Outcome:
        """Run the command in a container, or attach to the container in which an earlier try has started it."""
        self._identify(context)
        with self._translated_errors():
            if not self._attach():
                self._create(context)
                self.cli.start(self.name)
            reason = self._follow()
            state = self.cli.inspect_container(self.name)["State"]
            lines = self.cli.logs(self.name, stdout=True, stderr=False).decode("utf-8", "replace").splitlines()
            containers.remove(self.cli, self.name)
        return container_outcome(self.stage, state, lines[-1] if lines else "", reason)

    def on_kill(self) -> None:
        """Stop the stage and remove its container. Raise Interrupted if the container is to outlive this worker."""
        if not self.hook.client_created:
            return
        if outlives_worker(self.ti):
            raise Interrupted(f"the worker is shut down; {self.name} keeps running, and the next try attaches to it")
        self.log.info("stopping the container %s", self.name)  # the daemon continues even if this worker is killed
        containers.stop_and_remove(self.cli, self.name, self.grace)

    def _identify(self, context: Context) -> None:
        self.ti = ti = context["ti"]
        digest = hashlib.sha256("\n".join([ti.dag_id, ti.run_id, ti.task_id, str(ti.map_index)]).encode()).hexdigest()
        self.instance = f"{containers.name_prefix()}{self.stage}.{digest[:16]}."
        self.name = f"{self.instance}{ti.id}"  # ti.id is different for every try
        self.labels = {
            "spark-bert.deployment": deployment(),
            "spark-bert.dag": ti.dag_id,
            "spark-bert.run": ti.run_id,
            "spark-bert.task": ti.task_id,
            "spark-bert.map": str(ti.map_index),
            "spark-bert.generation": generation(context),
            "spark-bert.stage": self.stage,
        }

    def _attach(self) -> bool:
        """Attach to a container that does this work, if there is one, and stop the others of the task instance."""
        attached = False
        for name in [name for name in containers.container_names(self.cli) if name.startswith(self.instance)]:
            if not attached and self._is_attachable(name):
                self.log.info("attaching to the container %s of an earlier try", name)
                if name != self.name:
                    self.cli.rename(name, self.name)
                attached = True
            else:
                self.log.info("stopping the container %s, which does other work or is stopping", name)
                containers.stop_and_remove(self.cli, name, self.grace)
        return attached

    def _is_attachable(self, name: str) -> bool:
        found = self.cli.inspect_container(name)
        config, state = found["Config"], found["State"]
        same = (config["Cmd"], config["Image"]) == (self.command, self.image)
        same = same and self.labels.items() <= config["Labels"].items()
        sound = state["Running"] or (state["Status"] == "exited" and state["ExitCode"] == 0)
        return bool(same and sound and not name.endswith(containers.STOPPING))

    def _create(self, context: Context) -> None:
        sandbox = containers.host_config(self.stage, self.experiment, this_run(context).folder)
        container = {
            "image": self.image,
            "command": self.command,
            "name": self.name,
            "labels": self.labels,
            "environment": environment(self.stage, self.experiment) | self.variables,
            # Without a network, no other name can be resolved.
            "hostname": "localhost" if sandbox["network_mode"] == "none" else None,
            "user": ":".join(map(str, user())),
            "stop_timeout": self.grace,
            "use_config_proxy": False,  # the daemon's proxy address may contain a password
            "host_config": self.cli.create_host_config(**sandbox),
        }
        try:
            self.cli.create_container(**container)
        except ImageNotFound:
            if not _has_registry(self.image):
                raise
            self.log.info("pulling %s", self.image)
            self.cli.pull(self.image)
            self.cli.create_container(**container)

    def _follow(self) -> str:
        """Copy the stage's log until it has ended. Return its last error message, or its last line if there is none."""
        since, reason = None, ""
        while True:
            chunks = self.cli.logs(self.name, stdout=False, stderr=True, stream=True, follow=True, since=since)
            log = io.TextIOWrapper(io.BufferedReader(_Chunks(chunks)), encoding="utf-8", errors="backslashreplace")
            reason = forward_log(log, self.log) or reason
            if not self.cli.inspect_container(self.name)["State"]["Running"]:
                return reason
            # A proxy on the way may have closed the connection because the stage has logged nothing for a long time.
            since = int(time.time()) - 1

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except ImageNotFound as error:
            raise AirflowFailException(
                f"the daemon has no image {self.image}: build it with `make images`, or set SPARK_BERT_IMAGES and "
                "SPARK_BERT_TAG to an image that exists"
            ) from error
        except NotFound as error:
            raise Interrupted(
                f"the container {self.name} was stopped, removed or taken over while {self.stage} ran"
            ) from error
        except APIError as error:
            if error.is_client_error() and error.status_code != containers.CONFLICT:
                raise AirflowFailException(f"the daemon refuses the container: {error.explanation}") from error
            raise AirflowException(
                f"the daemon reported an error, another try may succeed: {error.explanation}"
            ) from error
        except (DockerException, RequestException) as error:
            raise self._unreachable() from error

    def _unreachable(self) -> Unreachable:
        return Unreachable(
            f"no Docker daemon answers at {self.docker_url}; another try may succeed. Check that it is running, that "
            "DOCKER_HOST names it, and that this user may open its socket (group docker)"
        )


class _Chunks(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = filter(None, chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._chunks, b"")
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def container_outcome(stage: str, state: dict[str, Any], line: str, reason: str) -> Outcome:
    """Return how the stage ended, from the state of its container as the daemon describes it."""
    if state["OOMKilled"] and state["ExitCode"]:  # another try would have the same limit
        raise AirflowFailException(out_of_memory(stage))
    return Outcome(state["ExitCode"], line, reason or state["Error"])


def _has_registry(image: str) -> bool:
    host, slash, _ = image.partition("/")
    return bool(slash) and (host == "localhost" or "." in host or ":" in host)
