"""Checkpoints on disk: one folder per checkpoint, which is complete or absent however the training ends.

step-<n>/ holds shared.safetensors (tensors that are equal on all ranks), rank-<r>.safetensors (tensors of one rank),
values.json and best/, the best model so far. Where the model is divided among ranks, part-<r>.safetensors of several
ranks hold together what is in shared.safetensors otherwise, every element once. The files are written into a hidden
folder; the manifest, with the size and sha256 of every file, is written last, and one rename makes the folder a
checkpoint. All ranks see the same file system, and all of them call every method.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from include.artifacts import MANIFEST, damaged, inventory, sync, write_json
from tasks.communication.ranks import sum_over_ranks
from tasks.communication.state import State
from tasks.training.job import checkpoints
from tasks.training.pieces import PlaceOf, load_pieces, save_pieces

log = logging.getLogger(__name__)
KEPT = 2
SHARED, VALUES, BEST = "shared.safetensors", "values.json", "best"


@dataclass(frozen=True)
class Snapshot:
    """What the next step of a training depends on, as one rank holds it.

    Attributes:
        shared: tensors that are equal on all ranks.
        own: tensors of this rank.
        values: values that JSON can hold, equal on all ranks.
        parts: parts of tensors that are divided among ranks, if this rank writes any.
        place_of: where each of them lies.
    """

    shared: State
    own: State
    values: dict[str, Any]
    parts: State = field(default_factory=dict)
    place_of: PlaceOf | None = None


class Checkpoints:
    """The checkpoints of one training.

    Attributes:
        folder: where they are written.
        every: steps between two checkpoints; 0: a checkpoint is written only when the training is stopped.
    """

    def __init__(self, folder: Path, every: int, rank: int, best: Path) -> None:
        """Keep checkpoints in a folder; `best` is the folder of the best model so far, which they contain."""
        self.folder, self.every = folder, every
        self._rank, self._best = rank, best

    def due(self, step: int) -> bool:
        """Return whether a checkpoint is to be written after this step."""
        return self.every > 0 and step % self.every == 0

    def write(self, step: int, snapshot: Snapshot) -> None:
        """Write a checkpoint, and remove all but the newest KEPT.

        When the disk is full, a warning is logged and the checkpoint before this one remains the newest.
        """
        started = time.monotonic()
        fresh = self.folder / f".step-{step}"
        whole = (
            self._together(lambda: self._begin(fresh, snapshot))
            and self._together(lambda: self._save_own(fresh, snapshot))
            and self._together(lambda: self._seal(fresh, self.folder / f"step-{step}"))
        )
        if self._rank == 0 and whole:
            log.info("checkpoint of step %d written in %.1f s", step, time.monotonic() - started)
        elif self._rank == 0:
            shutil.rmtree(fresh, ignore_errors=True)
            log.warning("step %d has no checkpoint in %s: the training continues without it", step, self.folder)

    def newest(self, same: dict[str, str]) -> int:
        """Return the step of the newest complete checkpoint whose values contain `same`, 0 when there is none.

        Newer checkpoints are renamed to unusable-step-<n>, and the log says why.
        """
        step = self._choose(same) if self._rank == 0 else 0
        return int(sum_over_ranks([step], "checkpoint.newest")[0])

    def values(self, step: int) -> dict[str, Any]:
        """Return the checkpoint's values."""
        values: dict[str, Any] = json.loads((self._path(step) / VALUES).read_text(encoding="utf-8"))
        return values

    def shared(self, step: int, device: torch.device, place_of: PlaceOf | None = None) -> State:
        """Return the checkpoint's shared tensors, or this rank's parts of them if it has parts only."""
        files = sorted(self._path(step).glob("part-*.safetensors"))
        if not files and place_of is None:
            return _load(self._path(step) / SHARED, device)
        return load_pieces([self._path(step) / SHARED, *files], place_of, device)

    def own(self, step: int, rank: int, device: torch.device) -> State:
        """Return the tensors of one rank of the training that wrote the checkpoint."""
        return _load(self._path(step) / _own(rank), device)

    def restore_best(self, step: int) -> None:
        """Restore the folder of the best model; before the first evaluation there is none."""
        if self._rank == 0:
            shutil.rmtree(self._best, ignore_errors=True)
            if (self._path(step) / BEST).is_dir():
                shutil.copytree(self._path(step) / BEST, self._best)

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def _choose(self, same: dict[str, str]) -> int:
        for left in self.folder.glob(".step-*"):
            shutil.rmtree(left)
        for step, folder in reversed(checkpoints(self.folder).items()):
            reason = _unusable(folder, same)
            if reason is None:
                return step
            aside = self.folder / f"unusable-{folder.name}"
            log.warning("%s is not used and was renamed to %s: %s", folder, aside.name, reason)
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
        return 0

    def _together(self, work: Callable[[], None]) -> bool:
        """Do this rank's work and wait for the other ranks; return whether it succeeded on all of them."""
        failed = 0
        try:
            work()
        except (OSError, SafetensorError) as error:
            log.warning("cannot write to %s: %s", self.folder, error)
            failed = 1
        return sum_over_ranks([failed], "checkpoint.failed") == [0]

    def _begin(self, fresh: Path, snapshot: Snapshot) -> None:
        if self._rank == 0:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            _save(snapshot.shared, fresh / SHARED)
            write_json(fresh / VALUES, snapshot.values)
            if self._best.is_dir():
                shutil.copytree(self._best, fresh / BEST)

    def _save_own(self, fresh: Path, snapshot: Snapshot) -> None:
        _save(snapshot.own, fresh / _own(self._rank))
        if snapshot.parts:
            save_pieces(snapshot.parts, snapshot.place_of, fresh / f"part-{self._rank}.safetensors")

    def _seal(self, fresh: Path, target: Path) -> None:
        if self._rank == 0:
            write_json(fresh / MANIFEST, {"files": inventory(fresh)})
            sync(fresh)
            if target.exists():
                shutil.rmtree(target)
            fresh.rename(target)
            sync(self.folder)
            for old in list(checkpoints(self.folder).values())[:-KEPT]:
                shutil.rmtree(old)


def _own(rank: int) -> str:
    return f"rank-{rank}.safetensors"


def _save(tensors: State, file: Path) -> None:
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, file)


def _load(file: Path, device: torch.device) -> State:
    # Mapped tensors may lie at unaligned addresses, where a matrix product can differ in its last bit: copy them.
    return {name: tensor.clone() for name, tensor in load_file(file, str(device)).items()}


def _unusable(folder: Path, same: dict[str, str]) -> str | None:
    """Return why a training cannot continue from a checkpoint, None when it can."""
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
