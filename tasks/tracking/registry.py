"""MLflow's model registry: the versions of one registered model, and which of them is the champion."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from include.artifacts import MANIFEST, sha256
from include.experiment import Experiment
from include.runs import Run
from include.stages import Transient
from tasks.tracking.server import REGISTERED, Server

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

log = logging.getLogger(__name__)

#: The aliases of the version in use, and of a version that the service tries out.
CHAMPION, CHALLENGER = "champion", "challenger"
#: The tag with the time at which a version was rolled back.
ROLLED_BACK = "rolled_back"
#: The maximum length of a version's tag in characters; newer servers accept more.
_TAG = 5000


@dataclass(frozen=True)
class Version:
    """A version of a registered model, created from the MLflow run with the id `run`."""

    model: str
    number: str
    run: str
    tags: Mapping[str, str] = field(compare=False)

    def __str__(self) -> str:
        return f"version {self.number} of {self.model}"


class Registry:
    """A registered model in the MLflow of a home; champions.py has the one whose champion can be moved.

    All methods raise Transient if MLflow does not answer, except for those of the challenger.
    """

    #: Whether to log in as the user who may move the champion alias.
    promoter: ClassVar[bool] = False

    def __init__(self, server: Server, model: str) -> None:
        self.server, self.model, self.client = server, model, server.connect()

    @classmethod
    def of(cls, experiment: Experiment, run: Run) -> Self:
        """Return the registry for the experiment's dataset, or for its task if it has no dataset, in the run's home."""
        name = f"spark-bert-{experiment.dataset.name or experiment.data.task}"
        return cls(Server(run.store.root.parent, cls.promoter), name)

    def versions(self) -> list[Version]:
        """Return all versions."""
        with self.translate_errors():
            found = self.client.search_model_versions(f"name = '{self.model}'")
        return [_version(one) for one in found]

    def with_tags(self, tags: Mapping[str, str]) -> Version | None:
        """Return the newest version whose tags have these values, or None."""
        found = [version for version in self.versions() if version.tags.items() >= tags.items()]
        return max(found, key=lambda version: int(version.number), default=None)

    def version(self, number: str) -> Version | None:
        """Return the version with this number, or None."""
        return next((version for version in self.versions() if version.number == number), None)

    def champion(self) -> Version | None:
        """Return the version with the champion alias, or None if there is no champion."""
        number = self.aliases().get(CHAMPION)
        return None if number is None else self.version(number)

    def aliases(self) -> dict[str, str]:
        """Return alias to number of a version; empty if nothing is registered yet."""
        with self.translate_errors():
            found = self.client.search_registered_models(f"name = '{self.model}'")
        return {alias: str(number) for alias, number in found[0].aliases.items()} if found else {}

    def add(self, run: str, package: Path, tags: Mapping[str, str]) -> Version:
        """Register a new version, created from an MLflow run, to which the folder of its package is uploaded."""
        folder = f"model-{sha256(package / MANIFEST)[:16]}"  # a version has the files of its own package
        with self.translate_errors():
            self.client.set_tag(run, REGISTERED, self.model)  # comes first, since it protects the run from deletion
            self.client.log_artifacts(run, str(package), folder)
            if not self.client.search_registered_models(f"name = '{self.model}'"):
                self.client.create_registered_model(self.model)
            source = f"runs:/{run}/{folder}"
            return _version(self.client.create_model_version(self.model, source, run, tags=_short(tags)))

    def tag(self, version: Version, tags: Mapping[str, str]) -> None:
        """Set tags of a version. Its other tags stay unchanged."""
        with self.translate_errors():
            for key, value in _short(tags).items():
                self.client.set_model_version_tag(self.model, version.number, key, value)

    def set_challenger(self, version: Version) -> None:
        """Let the service try out a version. If MLflow refuses, only the trial is lost, and a warning says so."""
        try:
            with self.translate_errors():
                self.client.set_registered_model_alias(self.model, CHALLENGER, version.number)
        except Transient as error:
            log.warning("%s is not tried out: %s", version, error)

    def remove_challenger(self, version: Version) -> None:
        """End the trial of a version. If MLflow refuses, only a warning says so."""
        try:
            if self.aliases().get(CHALLENGER) == version.number:
                with self.translate_errors():
                    self.client.delete_registered_model_alias(self.model, CHALLENGER)
        except Transient as error:
            log.warning("%s is still the challenger: %s", version, error)

    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise errors of MLflow as Transient."""
        return self.server.translate_errors(f"does not answer as the registry of {self.model}; another try may succeed")


def all_versions(server: Server) -> list[Version]:
    """Return the versions of all registered models; raise Transient if MLflow does not answer."""
    if server.is_new:
        return []
    client = server.connect()
    found: list[Version] = []
    token: str | None = None
    with server.translate_errors("does not answer as the registry; another try may succeed"):
        while True:
            page = client.search_model_versions(page_token=token)
            found += map(_version, page)
            token = page.token
            if not token:
                return found


def now() -> str:
    """Return the current time as tags have it: UTC in ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _version(found: ModelVersion) -> Version:
    return Version(found.name, str(found.version), found.run_id or "", dict(found.tags))


def _short(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: value[:_TAG] for key, value in tags.items()}
