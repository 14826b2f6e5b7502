"""Checkpoints on disk: a folder each, whole or not there, however the training ends.

step-<n>/ holds shared.safetensors (equal on all ranks), rank-<r>.safetensors (a rank's own), values.json and best/,
the best model so far. All is written into a hidden folder; the manifest comes last, with every file's size and
sha256, and one rename makes it a checkpoint. All ranks see the same file system, and take part in every method.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from include.artifacts import MANIFEST, damaged, inventory, sync, write_json
from tasks.communication.compression.base import State
from tasks.communication.link import sum_over_ranks
from tasks.training.job import checkpoints

log = logging.getLogger(__name__)
KEPT = 2
SHARED, VALUES, BEST = "shared.safetensors", "values.json", "best"


@dataclass(frozen=True)
class Snapshot:
    """What a training's next step depends on, as one rank has it.

    Attributes:
        shared: tensors that are equal on all ranks.
        own: tensors of this rank.
        values: what is no tensor, as JSON; equal on all ranks.
    """

    shared: State
    own: State
    values: dict[str, Any]


class Checkpoints:
    """The checkpoints of one training.

    Attributes:
        every: steps between two of them; 0: none but when the training is stopped.
    """

    def __init__(self, folder: Path, every: int, rank: int, world: int) -> None:
        self.every = every
        self._folder, self._rank, self._world = folder, rank, world

    def due(self, step: int) -> bool:
        """Whether to write one after this step."""
        return self.every > 0 and step % self.every == 0

    def write(self, step: int, snapshot: Snapshot, best: Path) -> None:
        """Write a checkpoint, with the model in `best` if there is one. The last KEPT remain.

        When there is no room for it, the log says so and the one before it remains the newest.
        """
        started = time.monotonic()
        fresh = self._folder / f".step-{step}"
        whole = (
            self._together(lambda: self._begin(fresh, snapshot, best))
            and self._together(lambda: _save(snapshot.own, fresh / _own(self._rank)))
            and self._together(lambda: self._seal(fresh, self._folder / f"step-{step}"))
        )
        if self._rank == 0 and whole:
            log.info("checkpoint of step %d written in %.1f s", step, time.monotonic() - started)
        elif self._rank == 0:
            shutil.rmtree(fresh, ignore_errors=True)
            log.warning("no checkpoint of step %d in %s: the training goes on without it", step, self._folder)

    def newest(self, same: dict[str, str]) -> int:
        """Step of the newest checkpoint that is whole and has these values, 0 when there is none.

        The newer ones are set aside as unusable-step-<n>, and the log says why.
        """
        step = self._choose(same) if self._rank == 0 else 0
        return int(sum_over_ranks([step], "checkpoint.newest")[0])

    def values(self, step: int) -> dict[str, Any]:
        """The checkpoint's values."""
        values: dict[str, Any] = json.loads((self._path(step) / VALUES).read_text(encoding="utf-8"))
        return values

    def shared(self, step: int, device: torch.device) -> State:
        """The checkpoint's shared tensors."""
        return _load(self._path(step) / SHARED, device)

    def own(self, step: int, rank: int, device: torch.device) -> State:
        """The tensors of the rank that had this number."""
        return _load(self._path(step) / _own(rank), device)

    def restore_best(self, step: int, target: Path) -> None:
        """Put the best model back as it was; there is none before the first evaluation."""
        if self._rank == 0:
            shutil.rmtree(target, ignore_errors=True)
            if (self._path(step) / BEST).is_dir():
                shutil.copytree(self._path(step) / BEST, target)

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step}"

    def _choose(self, same: dict[str, str]) -> int:
        for left in self._folder.glob(".step-*"):
            shutil.rmtree(left)
        for step, folder in reversed(checkpoints(self._folder).items()):
            reason = _unusable(folder, same)
            if reason is None:
                return step
            aside = self._folder / f"unusable-{folder.name}"
            log.warning("%s is not used, and set aside as %s: %s", folder, aside.name, reason)
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
        return 0

    def _together(self, work: Callable[[], None]) -> bool:
        """Work, and wait for the others; whether it went well on every rank."""
        failed = 0
        try:
            work()
        except (OSError, SafetensorError) as error:
            log.warning("cannot write to %s: %s", self._folder, error)
            failed = 1
        return sum_over_ranks([failed], "checkpoint.failed") == [0]

    def _begin(self, fresh: Path, snapshot: Snapshot, best: Path) -> None:
        if self._rank == 0:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            _save(snapshot.shared, fresh / SHARED)
            write_json(fresh / VALUES, snapshot.values)
            if best.is_dir():
                shutil.copytree(best, fresh / BEST)

    def _seal(self, fresh: Path, target: Path) -> None:
        if self._rank == 0:
            write_json(fresh / MANIFEST, {"files": inventory(fresh)})
            sync(fresh)
            if target.exists():
                shutil.rmtree(target)
            fresh.rename(target)
            sync(self._folder)
            for old in list(checkpoints(self._folder).values())[:-KEPT]:
                shutil.rmtree(old)


def _own(rank: int) -> str:
    return f"rank-{rank}.safetensors"


def _save(tensors: State, file: Path) -> None:
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, file)


def _load(file: Path, device: torch.device) -> State:
    """Copies, whose memory is aligned as any tensor's: where it is not, a matrix product may differ in its last bit."""
    return {name: tensor.clone() for name, tensor in load_file(file, str(device)).items()}


def _unusable(folder: Path, same: dict[str, str]) -> str | None:
    """Why a checkpoint cannot be gone on from."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        file = damaged(folder, files)
        if file is not None or VALUES not in files:
            return f"{file or folder / VALUES} is missing or damaged"
        values = json.loads((folder / VALUES).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        return f"its {MANIFEST} is missing or damaged ({error})"
    changed = [name for name, value in same.items() if values.get(name) != value]
    return f"it was written with another {' and '.join(changed)}" if changed else None
