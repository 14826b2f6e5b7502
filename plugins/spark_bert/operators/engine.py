"""The containers of this deployment on a Docker engine: how they are named, found and ended."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from docker.api import APIClient
from docker.errors import APIError, DockerException, NotFound
from docker.utils import kwargs_from_env
from requests import RequestException

from spark_bert.operators.base import GRACE
from spark_bert.orphans import Work
from spark_bert.places import deployment
from spark_bert.retries import Unreachable

#: The last part of a container's name once somebody has set out to stop it. Nothing undoes that.
ENDING = ".ending"
_CONFLICT = 409


def prefix() -> str:
    """What the names of this deployment's containers start with, and those of no other."""
    return f"spark-bert-stage-{deployment()}."


def at_work() -> list[Work]:
    """The containers of this deployment, running or not. Raises Unreachable when the engine does not answer."""
    try:
        cli = APIClient(**kwargs_from_env(), version="auto")
        found = containers(cli)
    except (DockerException, RequestException) as error:
        raise Unreachable(f"no Docker daemon answers: {error}") from error
    return [_work(cli, container) for container in found]


def _work(cli: APIClient, container: dict[str, Any]) -> Work:
    name = name_of(container)
    dag, run, task, index = (container["Labels"].get(f"spark-bert.{key}", "") for key in ("dag", "run", "task", "map"))
    return Work(name, dag, run, task, index, lambda: end(cli, name, GRACE))


def containers(cli: APIClient) -> list[dict[str, Any]]:
    """The containers of this deployment, running or not, as the engine lists them; one on its way out has no name."""
    found = cli.containers(all=True, filters={"label": [f"spark-bert.deployment={deployment()}"]})
    return [container for container in found if container["Names"]]


def names(cli: APIClient) -> list[str]:
    """The names of this deployment's containers."""
    return [name_of(container) for container in containers(cli)]


def name_of(container: dict[str, Any]) -> str:
    """The name of a container as the engine lists it."""
    return str(container["Names"][0]).removeprefix("/")


def end(cli: APIClient, name: str, grace: int) -> None:
    """Stop a container and remove it, unless it goes by another name by now.

    The new name comes first: from then on no try attaches to the container, and no other caller signals it again. A
    training that gets a second SIGTERM would break off its checkpoint. A caller that finds the name waits instead, for
    at most twice the grace (seconds).
    """
    ending = name.removesuffix(ENDING) + ENDING
    with suppress(NotFound):
        if name == ending:
            with suppress(RequestException):
                cli.wait(ending, timeout=2 * grace)
        else:
            cli.rename(name, ending)
            cli.stop(ending, timeout=grace)
        remove(cli, ending)


def remove(cli: APIClient, name: str) -> None:
    """Remove a container, running or not; somebody else may have done so or be at it."""
    try:
        cli.remove_container(name, force=True)
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != _CONFLICT:
            raise
