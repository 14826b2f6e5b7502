"""The docker runtime: a stage as a container that reaches no more than it needs and outlives its worker."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.docker.operators.docker import DockerOperator
from airflow.sdk import Context, ResumableJobMixin
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from docker.api import APIClient
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from requests import RequestException

from include.stages import BadInput
from spark_bert.containers import environment, image, user
from spark_bert.limits import limits, out_of_memory
from spark_bert.operators.base import Ending, StageOperator
from spark_bert.operators.stage_log import pass_on
from spark_bert.operators.walls import host_config
from spark_bert.places import run_folder

if TYPE_CHECKING:
    from pydantic import JsonValue

_CONFLICT = 409


class DockerStageOperator(StageOperator, ResumableJobMixin, DockerOperator):  # type: ignore[misc]
    """Runs a stage in a container. When the worker is lost, the next try attaches to it.

    A task instance has one container, known by its name, so there can never be two; its labels say what it is at
    work on. What an earlier clear of the task or another command has left is stopped and removed. Connection, TLS
    and address of the daemon are DockerOperator's own parameters.
    """

    template_fields: Sequence[str] = ("command", "image")
    external_id_key = "container"

    name: str  # of this task instance's container
    labels: dict[str, str]
    ending: Ending

    def __init__(self, *, stage: str, **kwargs: Any) -> None:
        limits(stage)  # a mistake in them stops the Dag from loading, not a run half-way
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
            ending: Ending = self.execute_resumable(context)
        return ending

    def submit_job(self, context: Context) -> JsonValue:
        """Start the container. A worker may have died before it could store the id: then that one is taken."""
        job = self._find()
        if job is None:
            self._discard()
            job = self._job(self._create(context))
            self.cli.start(self.name)
        return job

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Whether the container is there and can be attached to."""
        return "here" if external_id == self._find() else "gone"

    def is_job_active(self, status: str) -> bool:
        """Also where it has ended well since: its log and its result are still to be taken."""
        return status == "here"

    def is_job_succeeded(self, status: str) -> bool:
        """Never: a job that has succeeded is attached to, see is_job_active."""
        return False

    def poll_until_complete(self, external_id: JsonValue, context: Context) -> Any:
        """Pass the log on, from its start, until the stage has ended; then take its result and the container away."""
        reason = self._follow()
        state = self.cli.inspect_container(self.name)["State"]
        lines = self.cli.logs(self.name, stdout=True, stderr=False).decode("utf-8", "replace").splitlines()
        self._discard()
        self.ending = ending(self.stage, state, lines[-1] if lines else "", reason)
        return self.ending

    def get_job_result(self, external_id: JsonValue, context: Context) -> Ending:
        """How the stage ended."""
        return self.ending

    def on_kill(self) -> None:
        """Stop the stage and everything in its container. The daemon goes on with it should this worker be killed."""
        if self.hook.client_created:
            self.log.info("stopping the container %s", self.name)
            self._discard()

    def _identify(self, context: Context) -> None:
        ti = context["ti"]
        run = run_folder(ti.dag_id, ti.run_id)
        instance = f"{run} {ti.task_id} {ti.map_index}"
        self.name = f"spark-bert-stage-{self.stage}-{hashlib.sha256(instance.encode()).hexdigest()[:16]}"
        self.labels = {
            "spark-bert.dag": ti.dag_id,
            "spark-bert.run": ti.run_id,
            "spark-bert.task": ti.task_id,
            "spark-bert.map": str(ti.map_index),
            "spark-bert.generation": str(ti.max_tries),  # the same for all retries, more when the task is cleared
            "spark-bert.stage": self.stage,
        }

    def _job(self, container: str) -> str:
        return f"{self.labels['spark-bert.generation']}:{container}"

    def _find(self) -> str | None:
        """The container that does this very work: it runs, or it has ended well."""
        try:
            found = self.cli.inspect_container(self.name)
        except NotFound:
            return None
        config, state = found["Config"], found["State"]
        same = (config["Cmd"], config["Image"]) == (self.command, self.image)
        same = same and self.labels.items() <= config["Labels"].items()
        well = state["Running"] or (state["Status"] == "exited" and state["ExitCode"] == 0)
        return self._job(found["Id"]) if same and well else None

    def _discard(self) -> None:
        with suppress(NotFound):  # there is none, or it went by itself
            self.cli.stop(self.name, timeout=self.grace)
            self.cli.remove_container(self.name, force=True)

    def _create(self, context: Context) -> str:
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
            created = self.cli.create_container(**container)
        except ImageNotFound:
            if not _has_registry(self.image):
                raise
            self.log.info("pulling %s", self.image)
            self.cli.pull(self.image)
            created = self.cli.create_container(**container)
        return str(created["Id"])

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
            raise AirflowException(f"the container {self.name} was removed while {self.stage} ran") from error
        except APIError as error:
            if error.is_client_error() and error.status_code != _CONFLICT:
                raise AirflowFailException(f"the daemon refuses the container: {error.explanation}") from error
            raise AirflowException(f"the daemon failed, another try may succeed: {error.explanation}") from error
        except (DockerException, RequestException) as error:
            raise self._unreachable() from error

    def _unreachable(self) -> AirflowException:
        return AirflowException(
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
