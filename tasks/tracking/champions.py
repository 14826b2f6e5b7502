"""Moving the champion. Only promote and rollback may: an import contract (pyproject.toml) keeps the others from it."""

from __future__ import annotations

from contextlib import AbstractContextManager

from include.artifacts import ArtifactStore, locked
from tasks.tracking.registry import CHAMPION, Registry, Version


class Champions(Registry):
    """A registered model whose champion may be moved, with the promoter's login where the deployment has one."""

    promoter = True

    def make_champion(self, version: Version) -> None:
        """Move the alias."""
        with self._explained():
            self.client.set_registered_model_alias(self.model, CHAMPION, version.number)


def alone(store: ArtifactStore) -> AbstractContextManager[None]:
    """Hold the champions of a home for this process alone. Raises Transient while another one moves one."""
    return locked(store.root / "promote")
