"""Checkpoints on disk: one folder per checkpoint, which is complete or absent however the training ends.

step-<n>/ holds shared.safetensors (tensors that are equal on all ranks) or, of a divided model, part-<r>.safetensors,
rank-<r>.safetensors (tensors of one rank), values.json and best/, the best model so far. The files are written into a
hidden folder, the manifest last, which one rename makes a checkpoint. All ranks see the same file system, and call
every method.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from include.artifacts import MANIFEST, damaged, inventory, sync, write_json
from include.stages import Transient
from tasks.communication.layout import Place
from tasks.communication.ranks import sum_over_ranks
from tasks.communication.state import State
from tasks.training.job import checkpoints

log = logging.getLogger(__name__)
KEPT = 2
SHARED, VALUES, BEST = "shared.safetensors", "values.json", "best"
#: Returns where a tensor's part of this rank lies, by the tensor's name. None: the rank has the whole tensor.
PlaceOf = Callable[[str], Place | None]
#: The place of a tensor of which this rank has nothing.
ABSENT = Place((), (), (), written=False)


@dataclass(frozen=True)
class Snapshot:
    """What the next step of a training depends on, as one rank holds it."""

    shared: State  # tensors that are equal on all ranks
    own: State  # tensors of this rank
    values: dict[str, Any]  # that JSON can hold, equal on all ranks
    parts: State = field(default_factory=dict)  # of tensors that are divided among ranks, if this rank writes any
    place_of: PlaceOf | None = None  # where each part lies


class Checkpoints:
    """The checkpoints of one training."""

    def __init__(self, folder: Path, every: int, rank: int, best: Path) -> None:
        self.folder, self.every = folder, every
        self._rank, self._best = rank, best

    def due(self, step: int) -> bool:
        """Return whether a checkpoint is to be written after this step."""
        return self.every > 0 and step % self.every == 0

    def write(self, step: int, snapshot: Snapshot) -> None:
        """Write a checkpoint, and remove all but the newest KEPT. On a full disk, warn and go on without it."""
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
        """Return the step of the newest usable checkpoint, or 0; newer ones are renamed to unusable-step-<n>."""
        step = self._choose(same) if self._rank == 0 else 0
        return int(sum_over_ranks([step], "checkpoint.newest")[0])

    def values(self, step: int) -> dict[str, Any]:
        """Return the checkpoint's values."""
        values: dict[str, Any] = json.loads((self._path(step) / VALUES).read_text(encoding="utf-8"))
        return values

    def shared(self, step: int, device: torch.device, place_of: PlaceOf | None = None) -> State:
        """Return the checkpoint's shared tensors, or this rank's parts of them if it has parts only."""
        parts = sorted(self._path(step).glob("part-*.safetensors"))
        return load_pieces([self._path(step) / SHARED, *parts], place_of, device)

    def own(self, step: int, rank: int, device: torch.device) -> State:
        """Return the tensors of one rank of the training that wrote the checkpoint."""
        # Mapped tensors may lie at unaligned addresses, where a matrix product can differ in its last bit: copy them.
        mapped = load_file(self._path(step) / _own(rank), str(device))
        return {name: tensor.clone() for name, tensor in mapped.items()}

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
        failed = 0
        try:
            work()
        except (OSError, SafetensorError, Transient) as error:
            log.warning("cannot write to %s: %s", self.folder, error)
            failed = 1
        return sum_over_ranks([failed], "checkpoint.failed") == [0]

    def _begin(self, fresh: Path, snapshot: Snapshot) -> None:
        if self._rank == 0:
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            save_pieces(snapshot.shared, None, fresh / SHARED)
            write_json(fresh / VALUES, snapshot.values)
            if self._best.is_dir():
                shutil.copytree(self._best, fresh / BEST)

    def _save_own(self, fresh: Path, snapshot: Snapshot) -> None:
        save_pieces(snapshot.own, None, fresh / _own(self._rank))
        if snapshot.parts:
            save_pieces(snapshot.parts, snapshot.place_of, fresh / f"part-{self._rank}.safetensors")

    def _seal(self, fresh: Path, target: Path) -> None:
        if self._rank == 0:
            seal(fresh, target)


def seal(fresh: Path, target: Path) -> None:
    """Make a checkpoint of a folder that has all its files, and remove all but the newest KEPT."""
    write_json(fresh / MANIFEST, {"files": inventory(fresh)})
    sync(fresh)
    if target.exists():
        shutil.rmtree(target)
    fresh.rename(target)
    sync(target.parent)
    for old in list(checkpoints(target.parent).values())[:-KEPT]:
        shutil.rmtree(old)


def _own(rank: int) -> str:
    return f"rank-{rank}.safetensors"


def _unusable(folder: Path, same: dict[str, str]) -> str | None:
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


def save_pieces(tensors: State, place_of: PlaceOf | None, file: Path) -> None:
    """Write tensors, or parts of tensors with the place of each in the file's header."""
    header = {}
    for name, tensor in tensors.items():
        place = place_of(name) if place_of else None
        if place is not None and tensor.ndim:
            header[name] = json.dumps({"offset": place.offset, "whole": place.whole})
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, file, header or None)


def load_pieces(files: Iterable[Path], place_of: PlaceOf | None, device: torch.device) -> State:
    """Return the parts that `place_of` names of all tensors in the files. Raises KeyError if these lack some."""
    found: dict[str, Assembly] = {}
    for file in files:
        with safe_open(file, "pt") as content:
            header = content.metadata() or {}
            for name in content.keys():  # noqa: SIM118  # it is no mapping
                place = place_of(name) if place_of else None
                if place is ABSENT:
                    continue
                piece, described = content.get_slice(name)[...], json.loads(header.get(name, "{}"))
                begin = (0,) * piece.ndim
                if place is None or not piece.ndim:  # the optimizer's count of steps has no parts
                    whole = tuple(described.get("whole", piece.shape))
                    place = Place(begin, whole, whole, written=False)
                found.setdefault(name, Assembly(place, piece.dtype)).add(piece, tuple(described.get("offset", begin)))
    for name, assembly in found.items():
        if not assembly.complete:
            raise KeyError(f"a part of {name}")
    return {name: assembly.values.to(device) for name, assembly in found.items()}


class Assembly:
    """A part of a tensor that is put together from pieces, which are other parts of it."""

    def __init__(self, place: Place, dtype: torch.dtype) -> None:
        self.values = torch.empty(place.shape, dtype=dtype)
        self._place = place
        self._filled: dict[tuple[tuple[int, int], ...], int] = {}

    @property
    def complete(self) -> bool:
        """Whether the pieces fill the part."""
        return sum(self._filled.values()) == self.values.numel()

    def add(self, piece: torch.Tensor, offset: tuple[int, ...]) -> None:
        """Copy where a piece, which begins at the offset in the whole tensor, and the part overlap, if they do."""
        place = self._place
        begin = [max(pair) for pair in zip(offset, place.offset, strict=True)]
        ends = [min(a + n, b + m) for a, n, b, m in zip(offset, piece.shape, place.offset, place.shape, strict=True)]
        if all(low < high for low, high in zip(begin, ends, strict=True)):
            there = tuple(slice(low - o, high - o) for low, high, o in zip(begin, ends, offset, strict=True))
            here = tuple(slice(low - o, high - o) for low, high, o in zip(begin, ends, place.offset, strict=True))
            self.values[here] = piece[there]
            self._filled[tuple(zip(begin, ends, strict=True))] = piece[there].numel()
