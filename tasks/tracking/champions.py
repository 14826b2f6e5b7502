"""Move the champion alias. An import contract (pyproject.toml) allows only promote and rollback to use this module."""

from __future__ import annotations

from contextlib import AbstractContextManager

from include.artifacts import ArtifactStore, locked
from tasks.tracking.registry import CHAMPION, Registry, Version


class Champions(Registry):
    """A registered model whose champion alias can be moved, with the promoter's login if the deployment has one."""

    promoter = True

    def make_champion(self, version: Version) -> None:
        """Move the champion alias to a version."""
        with self.translate_errors():
            self.client.set_registered_model_alias(self.model, CHAMPION, version.number)


def champion_lock(store: ArtifactStore) -> AbstractContextManager[None]:
    """Lock the champions of a home for this process; raise Transient if another process holds the lock."""
    return locked(store.root / "promote")
