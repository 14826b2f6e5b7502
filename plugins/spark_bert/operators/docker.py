"""The docker runtime: a stage as a container that reaches no more than it needs and outlives its worker."""

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

from include.stages import BadInput
from spark_bert.containers import environment, image, user
from spark_bert.limits import limits, out_of_memory
from spark_bert.operators.base import Ending, StageOperator, generation
from spark_bert.operators.engine import ENDING, end, names, prefix, remove
from spark_bert.operators.shutdown import keeps, outlives_worker
from spark_bert.operators.stage_log import pass_on
from spark_bert.operators.walls import host_config
from spark_bert.places import deployment, run_folder
from spark_bert.retries import Interrupted, Unreachable

_CONFLICT = 409


class DockerStageOperator(StageOperator, DockerOperator):  # type: ignore[misc]
    """Runs a stage in a container. When the worker is lost, the next try attaches to it.

    A container's name says which try of which task instance owns it, and a try reaches a container by its own name
    only. A try that attaches to a container renames it to its own, and a try that ends one first renames it to a name
    that nobody attaches to. So a try that is no longer the owner cannot stop or remove anything, and a container that
    is being stopped is never taken for one at work. The labels say what a container is at work on. Connection, TLS and
    address of the daemon are DockerOperator's own parameters.
    """

    template_fields: Sequence[str] = ("command", "image")

    instance: str  # what the names of all containers of this task instance start with
    name: str  # of this try's container
    labels: dict[str, str]
    ti: RuntimeTaskInstanceProtocol

    def __init__(self, *, stage: str, **kwargs: Any) -> None:
        limits(stage), keeps(), deployment()  # a mistake in them stops the Dag from loading, not a run half-way
        super().__init__(stage=stage, image=image(stage), mount_tmp_dir=False, **kwargs)

    @property
    def cli(self) -> APIClient:
        """The daemon."""
        try:
            return super().cli
        except AirflowException as error:
            raise self._unreachable() from error

    def run_stage(self, context: Context) -> Ending:
        """Run the command in a container, or attach to the one that an earlier try has left at work on it."""
        self._identify(context)
        with self._explained():
            if not self._attach():
                self._create(context)
                self.cli.start(self.name)
            reason = self._follow()
            state = self.cli.inspect_container(self.name)["State"]
            lines = self.cli.logs(self.name, stdout=True, stderr=False).decode("utf-8", "replace").splitlines()
            remove(self.cli, self.name)
        return ending(self.stage, state, lines[-1] if lines else "", reason)

    def on_kill(self) -> None:
        """Stop the stage and everything in its container. The daemon goes on with it should this worker be killed.

        Raises Interrupted where the container shall outlive this worker.
        """
        if not self.hook.client_created:
            return
        if outlives_worker(self.ti):
            raise Interrupted(f"the worker is shut down; {self.name} goes on, and the next try attaches to it")
        self.log.info("stopping the container %s", self.name)
        end(self.cli, self.name, self.grace)

    def _identify(self, context: Context) -> None:
        self.ti = ti = context["ti"]
        digest = hashlib.sha256("\n".join([ti.dag_id, ti.run_id, ti.task_id, str(ti.map_index)]).encode()).hexdigest()
        self.instance = f"{prefix()}{self.stage}.{digest[:16]}."
        self.name = f"{self.instance}{ti.id}"  # Airflow gives each try an id of its own
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
        """Take over the container that is at work on this, if there is one; end every other of the task instance."""
        attached = False
        for name in [name for name in names(self.cli) if name.startswith(self.instance)]:
            if not attached and self._is_at_work(name):
                self.log.info("attaching to the container %s of an earlier try", name)
                if name != self.name:
                    self.cli.rename(name, self.name)
                attached = True
            else:
                self.log.info("ending the container %s, which is not at work on this", name)
                end(self.cli, name, self.grace)
        return attached

    def _is_at_work(self, name: str) -> bool:
        """Whether a container does this very work: it runs and is not being stopped, or it has ended well."""
        found = self.cli.inspect_container(name)
        config, state = found["Config"], found["State"]
        same = (config["Cmd"], config["Image"]) == (self.command, self.image)
        same = same and self.labels.items() <= config["Labels"].items()
        well = state["Running"] or (state["Status"] == "exited" and state["ExitCode"] == 0)
        return bool(same and well and not name.endswith(ENDING))

    def _create(self, context: Context) -> None:
        walls = host_config(self.stage, self.experiment, run_folder(context["ti"].dag_id, context["ti"].run_id))
        container = {
            "image": self.image,
            "command": self.command,
            "name": self.name,
            "labels": self.labels,
            "environment": environment(self.stage, self.experiment),
            "hostname": "localhost" if walls["network_mode"] == "none" else None,  # without a network no other resolves
            "user": ":".join(map(str, user())),
            "stop_timeout": self.grace,
            "use_config_proxy": False,  # an address with a password may stand there
            "host_config": self.cli.create_host_config(**walls),
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
        """Log what the stage logs until it has ended; its last error message, or else its last line."""
        since, reason = None, ""
        while True:
            chunks = self.cli.logs(self.name, stdout=False, stderr=True, stream=True, follow=True, since=since)
            log = io.TextIOWrapper(io.BufferedReader(_Chunks(chunks)), encoding="utf-8", errors="backslashreplace")
            reason = pass_on(log, self.log) or reason
            if not self.cli.inspect_container(self.name)["State"]["Running"]:
                return reason
            since = int(time.time()) - 1  # something in between ends connections on which nothing was said for long

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the daemon says into a retry or a failure, with a message that says what to do."""
        try:
            yield
        except BadInput as error:
            raise AirflowFailException(str(error)) from None
        except ImageNotFound as error:
            raise AirflowFailException(
                f"the daemon has no image {self.image}: let `make images` build it, or name yours with "
                "SPARK_BERT_IMAGES and SPARK_BERT_TAG"
            ) from error
        except NotFound as error:
            raise Interrupted(
                f"the container {self.name} was stopped, removed or taken over while {self.stage} ran"
            ) from error
        except APIError as error:
            if error.is_client_error() and error.status_code != _CONFLICT:
                raise AirflowFailException(f"the daemon refuses the container: {error.explanation}") from error
            raise AirflowException(f"the daemon failed, another try may succeed: {error.explanation}") from error
        except (DockerException, RequestException) as error:
            raise self._unreachable() from error

    def _unreachable(self) -> Unreachable:
        return Unreachable(
            f"no Docker daemon answers at {self.docker_url}; another try may succeed. Is it running, does DOCKER_HOST "
            "name it, and may this user open its socket (group docker)?"
        )


class _Chunks(io.RawIOBase):
    """Docker's stream of bytes as a file."""

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


def ending(stage: str, state: dict[str, Any], line: str, reason: str) -> Ending:
    """How a container's state, last line and log say that the stage ended.

    Raises AirflowFailException where the memory limit ended it, itself or one of its processes: another try has the
    same limit.
    """
    if state["OOMKilled"] and state["ExitCode"]:
        raise AirflowFailException(out_of_memory(stage))
    return Ending(state["ExitCode"], line, reason or state["Error"])


def _has_registry(image: str) -> bool:
    host, slash, _ = image.partition("/")
    return bool(slash) and (host == "localhost" or "." in host or ":" in host)
