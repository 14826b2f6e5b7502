"""The containers of this deployment on a Docker engine: how they are named, listed, stopped and removed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from docker.api import APIClient
from docker.errors import APIError, DockerException, NotFound
from docker.utils import kwargs_from_env
from requests import RequestException

from spark_bert.dag.retries import Unreachable
from spark_bert.deployment.places import deployment
from spark_bert.operators.base import GRACE
from spark_bert.operators.orphans import Workload

#: The end of the name of a container that is being stopped. Such a container is never taken over again.
STOPPING = ".ending"
_CONFLICT = 409


def name_prefix() -> str:
    """Return the beginning of the names of this deployment's containers, which no other deployment uses."""
    return f"spark-bert-stage-{deployment()}."


def list_workloads() -> list[Workload]:
    """Return the containers of this deployment in any state.

    Raises:
        Unreachable: if the engine does not answer.
    """
    try:
        cli = APIClient(**kwargs_from_env(), version="auto")
        found = containers(cli)
    except (DockerException, RequestException) as error:
        raise Unreachable(f"no Docker daemon answers: {error}") from error
    return [_workload(cli, container) for container in found]


def _workload(cli: APIClient, container: dict[str, Any]) -> Workload:
    name = container_name(container)
    dag, run, task, index = (container["Labels"].get(f"spark-bert.{key}", "") for key in ("dag", "run", "task", "map"))
    return Workload(name, dag, run, task, index, lambda: stop_and_remove(cli, name, GRACE))


def containers(cli: APIClient) -> list[dict[str, Any]]:
    """Return the containers of this deployment in any state, as the engine describes them."""
    found = cli.containers(all=True, filters={"label": [f"spark-bert.deployment={deployment()}"]})
    return [container for container in found if container["Names"]]  # one that is being removed has no name


def container_names(cli: APIClient) -> list[str]:
    """Return the names of this deployment's containers."""
    return [container_name(container) for container in containers(cli)]


def container_name(container: dict[str, Any]) -> str:
    """Return the name in the engine's description of a container."""
    return str(container["Names"][0]).removeprefix("/")


def stop_and_remove(cli: APIClient, name: str, grace: int) -> None:
    """Stop a container and remove it, unless it has been renamed since its name was listed.

    The container is first given a name that ends with STOPPING. From then on, no try attaches to it, and no other
    caller sends it a signal, because a training would abort its checkpoint on a second SIGTERM. A caller that finds a
    container with such a name waits for its end instead, for at most twice the grace.

    Args:
        cli: the client of the engine.
        name: the name of the container.
        grace: the seconds between SIGTERM and SIGKILL.
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
    """Remove a container in any state. Nothing happens if another process has removed it or is removing it."""
    try:
        cli.remove_container(name, force=True)
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != _CONFLICT:
            raise
