"""MLflow's registry of models: the versions of one registered model, and which of them is the champion."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from include.experiment import Experiment
from include.runs import Run
from tasks.tracking.server import REGISTERED, Server

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

#: The alias of the version that is in use.
CHAMPION = "champion"
#: The file that says what a model is, and the folder of a run that holds it.
MLMODEL, FOLDER = "MLmodel", "model"
#: How long a version's tag may be; newer servers take more.
_TAG = 5000


@dataclass(frozen=True)
class Version:
    """A version of a registered model.

    Attributes:
        model: the registered model's name.
        number: the version's.
        run: id of the MLflow run that it was made from.
        tags: what is known of it.
    """

    model: str
    number: str
    run: str
    tags: Mapping[str, str] = field(compare=False)

    def __str__(self) -> str:
        return f"version {self.number} of {self.model}"


class Registry:
    """A registered model of a home's MLflow. Every call raises Transient while MLflow does not answer.

    What moves the champion is in champions.py.
    """

    #: Whether it logs in as the one who may move the champion's alias.
    promoter: ClassVar[bool] = False

    def __init__(self, server: Server, model: str) -> None:
        self.server, self.model, self.client = server, model, server.connect()

    @classmethod
    def of(cls, experiment: Experiment, run: Run) -> Self:
        """Of the experiment's dataset, or else its task, where the run is at home."""
        name = f"spark-bert-{experiment.dataset.name or experiment.data.task}"
        return cls(Server(run.store.root.parent, cls.promoter), name)

    def versions(self) -> list[Version]:
        """All versions; none before the first is entered."""
        with self._explained():
            found = self.client.search_model_versions(f"name = '{self.model}'")
        return [_version(one) for one in found]

    def with_tag(self, key: str, value: str) -> Version | None:
        """The version whose tag has the value, if any."""
        return next((version for version in self.versions() if version.tags.get(key) == value), None)

    def version(self, number: str) -> Version | None:
        """The version of that number, if any."""
        return next((version for version in self.versions() if version.number == number), None)

    def champion(self) -> Version | None:
        """The version with the alias; None as long as there is none."""
        with self._explained():
            found = self.client.search_registered_models(f"name = '{self.model}'")
        number = found[0].aliases.get(CHAMPION) if found else None
        return None if number is None else self.version(str(number))

    def add(self, run: str, description: Path, tags: Mapping[str, str]) -> Version:
        """Enter a version that was made by the MLflow run and is what the file MLmodel says."""
        with self._explained():
            self.client.set_tag(run, REGISTERED, self.model)  # first: from now on the run is kept
            self.client.log_artifact(run, str(description), FOLDER)
            if not self.client.search_registered_models(f"name = '{self.model}'"):
                self.client.create_registered_model(self.model)
            source = f"runs:/{run}/{FOLDER}"
            return _version(self.client.create_model_version(self.model, source, run, tags=_short(tags)))

    def tag(self, version: Version, tags: Mapping[str, str]) -> None:
        """Set tags of a version; its others stay."""
        with self._explained():
            for key, value in _short(tags).items():
                self.client.set_model_version_tag(self.model, version.number, key, value)

    def _explained(self) -> AbstractContextManager[None]:
        return self.server.explained(f"does not answer as the registry of {self.model}; another try may succeed")


def all_versions(server: Server) -> list[Version]:
    """The versions of all registered models; none before a home has a database. Raises Transient without an answer."""
    if server.is_new:
        return []
    client = server.connect()
    found: list[Version] = []
    token: str | None = None
    with server.explained("does not answer as the registry; another try may succeed"):
        while True:
            page = client.search_model_versions(page_token=token)
            found += map(_version, page)
            token = page.token
            if not token:
                return found


def now() -> str:
    """The time as tags say it: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _version(found: ModelVersion) -> Version:
    return Version(found.name, str(found.version), found.run_id or "", dict(found.tags))


def _short(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: value[:_TAG] for key, value in tags.items()}
