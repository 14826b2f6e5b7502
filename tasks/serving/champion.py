"""The champion of the registry: seen when the alias moves, verified, and given to the service."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from include.artifacts import ArtifactStore
from include.stages import BadInput, Transient
from tasks.serving.served_model import ServedModel, open_model
from tasks.serving.service import Service
from tasks.tracking.loading import PACKAGE_SHA256, load_package
from tasks.tracking.registry import Registry, Version

log = logging.getLogger(__name__)


class ChampionWatch:
    """Looks at the alias, and lets the service answer with each new champion that is sound.

    A champion that cannot be loaded stays out until the alias moves again, and the one before it goes on answering.

    Args:
        service: the service.
        registry: the registered model.
        store: the store with the packages.
    """

    def __init__(self, service: Service, registry: Registry, store: ArtifactStore) -> None:
        self._service, self._registry, self._store = service, registry, store
        self._seen: tuple[str, str] | None = None
        self._told = ""

    async def watch(self) -> NoReturn:
        """Look, again and again."""
        while True:
            await self.look()
            await asyncio.sleep(self._service.serving.poll)

    async def look(self) -> None:
        """Load the champion if it is another one than before."""
        try:
            version = await asyncio.to_thread(self._registry.champion)
        except Transient as error:
            self._tell(str(error))
            return
        if version is None:
            self._tell(f"{self._registry.model} has no champion yet: promote a model with the Dag retrain")
            return
        identity = version.number, version.tags.get(PACKAGE_SHA256, "")
        if identity != self._seen:
            self._seen = identity
            await self._take(version)

    async def _take(self, version: Version) -> None:
        """Let the service answer with a version if it is sound."""
        try:
            await self._service.use(await asyncio.to_thread(self._load, version))
        except Exception as error:  # whatever a damaged file makes a library raise
            self._service.metrics.loads.labels("refused").inc()
            known = isinstance(error, BadInput)
            log.error("%s is not used: %s", version, error if known else repr(error), exc_info=not known)
        else:
            self._service.metrics.loads.labels("used").inc()

    def _load(self, version: Version) -> ServedModel:
        package = load_package(version, self._store)
        if package is None:
            raise BadInput(f"{version} has no package: retrain, or register the run again after the stage package")
        return open_model(package.path, version.model, version.number, self._service.serving.threads)

    def _tell(self, message: str) -> None:
        """Log a message, but not again as long as nothing else happens."""
        if message != self._told:
            log.warning("%s", message)
        self._told = message
