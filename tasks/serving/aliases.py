"""Follow the aliases of the registry: a version that an alias has moved to is verified and given to the service."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import NoReturn

from include.artifacts import ArtifactStore
from include.stages import BadInput, StageError
from tasks.serving.served_model import ServedModel, open_model
from tasks.serving.service import Service
from tasks.tracking.loading import load_package
from tasks.tracking.registry import CHALLENGER, CHAMPION, Registry

log = logging.getLogger(__name__)

#: The longest time in seconds until a version that could not be loaded is tried again.
LONGEST_WAIT = 300.0


@dataclass(frozen=True)
class Refused:
    """A version that could not be loaded."""

    number: str
    reason: str
    wait: float  # seconds until the next try
    again: float  # when that is, by the clock of the event loop


class AliasWatch:
    """Looks at the aliases champion and challenger, and gives the service each new version that is sound.

    A version that cannot be loaded is tried again, at growing intervals, because its files may arrive or be repaired;
    meanwhile, the previous champion answers. After any other error, such as an MLflow that does not answer, the next
    look is the next try.
    """

    def __init__(
        self, service: Service, registry: Registry, store: ArtifactStore, max_risk: float | None = None
    ) -> None:
        self._service, self._registry, self._store, self._max_risk = service, registry, store, max_risk
        self._seen: dict[str, str] = {}
        self._refused: dict[str, Refused] = {}
        self._told = ""

    async def watch(self) -> NoReturn:
        """Look at the aliases until this is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._service.serving.poll)

    async def look(self) -> None:
        """Let the service follow the aliases."""
        try:
            aliases = await asyncio.to_thread(self._registry.aliases)
            if CHAMPION in aliases:
                await self._follow(CHAMPION, aliases[CHAMPION])
                if aliases.get(CHALLENGER, "") in ("", aliases[CHAMPION]):
                    self._service.dismiss()
                    self._seen.pop(CHALLENGER, None)
                    self._refused.pop(CHALLENGER, None)
                else:
                    await self._follow(CHALLENGER, aliases[CHALLENGER])
                self._told = ""
            else:
                self._tell(
                    f"{self._registry.model} has no champion: promote a model with the Dag retrain, or serve the "
                    "folder of a package (serving.model)"
                )
        except Exception as error:  # a broken MLflow may answer anything, and the next look may succeed
            self._tell(str(error) if isinstance(error, StageError) else repr(error))

    async def _follow(self, alias: str, number: str) -> None:
        """Let the service take the version of an alias if it is another one than before."""
        now, refused = asyncio.get_running_loop().time(), self._refused.get(alias)
        if refused is not None and refused.number != number:
            refused = None
        if number == self._seen.get(alias) or (refused is not None and now < refused.again):
            return
        take = self._service.use if alias == CHAMPION else self._service.challenge
        try:
            await take(await asyncio.to_thread(self._load, number))
        except BadInput as error:
            self._refuse(alias, number, refused, str(error))
        else:
            self._service.metrics.loads.labels("used").inc()
            self._seen[alias] = number
            self._refused.pop(alias, None)

    def _refuse(self, alias: str, number: str, before: Refused | None, reason: str) -> None:
        """Note that a version is tried again later. A reason is logged once, and a version counted once."""
        now, wait = asyncio.get_running_loop().time(), 2 * (before.wait if before else self._service.serving.poll)
        wait = min(wait, LONGEST_WAIT)
        if before is None:
            self._service.metrics.loads.labels("refused").inc()
            self._service.obstacle = f"version {number} of {self._registry.model} is not used, and the log says why"
        if before is None or before.reason != reason:
            log.error("version %s of %s is not used: %s", number, self._registry.model, reason)
        self._refused[alias] = Refused(number, reason, wait, now + wait)

    def _load(self, number: str) -> ServedModel:
        version = self._registry.version(number)
        if version is None:
            raise BadInput("it is no longer registered: move the alias to another version")
        package = load_package(version, self._store)
        if package is None:
            raise BadInput(f"{version} has no package: retrain, or register the run again after the stage package")
        serving = self._service.serving
        return open_model(package.path, version.model, version.number, serving.threads, serving.form, self._max_risk)

    def _tell(self, message: str) -> None:
        if message != self._told:
            log.warning("%s", message)
        self._told = message
