"""Checkpoints of ranks that have no folder in common: they put them into a store, from which the driver brings them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tasks.staging import below, transfer
from tasks.training.checkpoint import VALUES, Checkpoints, Snapshot


class StagedCheckpoints(Checkpoints):
    """The checkpoints of one training. A rank has a folder of its own, which holds those that it can continue from."""

    def __init__(self, folder: Path, every: int, rank: int, best: Path, address: str) -> None:
        super().__init__(folder, every, rank, best)
        self._address = address

    def _begin(self, fresh: Path, snapshot: Snapshot) -> None:
        shutil.rmtree(fresh, ignore_errors=True)
        super()._begin(fresh, snapshot)
        fresh.mkdir(parents=True, exist_ok=True)

    def _save_own(self, fresh: Path, snapshot: Snapshot) -> None:
        super()._save_own(fresh, snapshot)
        files = sorted(file.relative_to(fresh) for file in fresh.rglob("*") if file.is_file())
        for file in files:
            if file != Path(VALUES):
                self._put(fresh, file)

    def _seal(self, fresh: Path, target: Path) -> None:
        """Put the file that makes the checkpoint complete, as all ranks have put theirs."""
        if self._rank == 0:
            self._put(fresh, Path(VALUES))
        shutil.rmtree(fresh)

    def _put(self, fresh: Path, file: Path) -> None:
        transfer(str(fresh / file), below(self._address, f"{fresh.name.removeprefix('.')}/{file.as_posix()}"))
