"""What a checkpoint holds of a training, as named parts, and how a training continues from it.

A checkpoint is written after a step's update and before its evaluation, which is repeated. On the same layout (ranks on
each host, and how they divide the model) and number of threads, the losses from there on equal those of an
uninterrupted training to the bit, but for some sums of a GPU. On another layout, batches still hold the same rows; the
state of the exchange is redistributed (Exchange.redistribute), random numbers are seeded anew, as on another kind of
device, and the next mean loss in metrics.jsonl covers only the steps since the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from include.artifacts import sha256
from include.stages import BadInput, non_defaults
from tasks.communication.layout import Layout, Mesh, Place
from tasks.communication.state import State, Stateful, part_of, prefixed
from tasks.training.checkpoint import ABSENT, Checkpoints, PlaceOf, Snapshot
from tasks.training.job import SPLITS, Job

if TYPE_CHECKING:
    from tasks.communication.divided import Part

log = logging.getLogger(__name__)
#: Raised when a checkpoint's parts change, so that a checkpoint of older code is set aside and not misread.
FORMAT = "2"
#: The sections of the experiment that the engine reads.
SECTIONS = ("model", "pretraining", "batching", "loss", "distillation", "training", "communication")


def identity(job: Job) -> dict[str, str]:
    """Return hashes of the data and of the experiment without ranks, and the format, which a checkpoint must share."""
    # Fields with default values stay out, so that a new field does not make a checkpoint useless.
    config = non_defaults(job.experiment, SECTIONS)
    config.pop("training.ranks", None)
    files = {(job.data, file) for split in SPLITS for file in (job.data / split).glob("*.arrow")}
    if teacher := job.teacher:
        files |= {(teacher, file) for pattern in ("*.parquet", "unlabeled/*.arrow") for file in teacher.glob(pattern)}
    data = {str(file.relative_to(folder)): sha256(file) for folder, file in sorted(files)}
    return {"format": FORMAT, "config": _hash(config), "data": _hash(data)}


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class TrainingState:
    """Everything that the next step depends on, in named parts."""

    shared: Mapping[str, Stateful[State]]  # equal on all ranks; loaded before the others
    per_rank: Mapping[str, Stateful[State]]  # of one rank, and valid for every layout of the same world size
    per_layout: Mapping[str, Stateful[State]]  # of one rank of one layout, else redistributed; loaded in this order
    values: Mapping[str, Stateful[Any]]  # that JSON can hold, equal on all ranks
    redistribute: Callable[[Sequence[State]], State]  # makes this rank's state out of those of another layout's ranks
    random: RandomState  # the one of `per_rank`
    hosts: list[int]  # the number of ranks on each
    layout: Layout
    places: Mapping[str, Place]  # where this rank's parts of the parameters lie, by name, if the model is divided
    identity: dict[str, str]  # what a checkpoint must share with the training that continues from it

    def snapshot(self) -> Snapshot:
        """Return the state of all parts."""
        values = {name: part.state_dict() for name, part in self.values.items()}
        own, shared = {**_join(self.per_rank), **_join(self.per_layout)}, _join(self.shared)
        whole = {**self.identity, **values, "hosts": self.hosts, "mesh": list(self.layout.mesh)}
        if not self.layout.divided:
            return Snapshot(shared, own, whole)
        return Snapshot({}, own, whole, {name: one for name, one in shared.items() if self.writes(name)}, self._place)

    def restore(self, checkpoints: Checkpoints, step: int) -> None:
        """Load the state of all parts from a step's checkpoint. Raises BadInput if that lacks something."""
        try:
            values, device = checkpoints.values(step), self.random.device
            _load(self.shared, checkpoints.shared(step, device, self._place if self.layout.divided else None))
            for name, part in self.values.items():
                part.load_state_dict(values[name])
            hosts: list[int] = values["hosts"]
            mesh = Mesh(*values["mesh"])
            own = checkpoints.own(step, self.layout.rank, device) if mesh == self.layout.mesh else None
            self.random.reseed(step)
            if own is not None:
                _load(self.per_rank, own)
            if own is None or hosts != self.hosts:
                own = self._redistributed([checkpoints.own(step, rank, device) for rank in range(sum(hosts))])
                if self.layout.leads:
                    before, now = _described(hosts, mesh), _described(self.hosts, self.layout.mesh)
                    log.warning("the layout was (%s) and is now (%s): losses will differ slightly", before, now)
            _load(self.per_layout, own)
        except KeyError as error:
            raise BadInput(
                f"the checkpoint of step {step} in {checkpoints.folder} lacks {error}: "
                "remove that checkpoint's folder, and run the stage again"
            ) from error

    def written_weights(self) -> tuple[State, PlaceOf]:
        """Return what this rank writes of the model's weights, and where each tensor lies."""
        own = self.shared["model"].state_dict()
        return {name: one for name, one in own.items() if self.writes(f"model.{name}")}, self.places.get

    def writes(self, key: str) -> bool:
        """Return whether this rank writes its part of a tensor of `shared`, of which others may have copies."""
        place = self._place(key)
        return place.written if place else self.layout.place._replace(pipeline=0) == Mesh(0, 0, 0, 0)

    def _place(self, key: str) -> Place | None:
        name = key.partition(".")[2]
        place = self.places.get(name) or self.places.get(name.rpartition(".")[0])  # which is a moment of the optimizer
        return place or (None if key in self._keys else ABSENT)

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(_join(self.shared))

    def _redistributed(self, states: list[State]) -> State:
        own: State = {}
        for name in self.per_layout:
            own |= prefixed(name, self.redistribute([part_of(state, name) for state in states]))
        return own


class Weights:
    """Parameters and buffers of a module as state; one that has two names is kept once."""

    def __init__(self, module: nn.Module, parts: Mapping[str, Part] | None = None) -> None:
        self._parameters: State = dict(module.named_parameters())
        if parts is not None:
            self._parameters = {name: part.values for name, part in parts.items()}
        self._module = module

    def state_dict(self) -> State:
        """Return the tensors themselves, by name."""
        return {**self._parameters, **dict(self._module.named_buffers())}

    @torch.no_grad()
    def load_state_dict(self, state: State) -> None:
        """Copy the values into the module's tensors."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


class RandomState:
    """The random-number generators of dropout. A GPU draws other numbers than a CPU, so states fit one of them only."""

    def __init__(self, device: torch.device, seed: int, rank: int) -> None:
        self.device, self._seed, self._rank = device, seed, rank

    def state_dict(self) -> State:
        """Return the generators' states."""
        state = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def load_state_dict(self, state: State) -> None:
        """Set the generators to these states; those of another kind of device leave them as they are."""
        if ("cuda" in state) != (self.device.type == "cuda"):
            return
        torch.set_rng_state(state["cpu"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"].cpu(), self.device)

    def reseed(self, step: int) -> None:
        """Seed the generators from the training's seed, the rank and the step."""
        seeds = np.random.SeedSequence([self._seed, self._rank, step])
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))


def _described(hosts: Sequence[int], mesh: Mesh) -> str:
    axes = "".join(f", {axis}: {size}" for axis, size in mesh._asdict().items() if axis != "data" and size > 1)
    return f"ranks: {sum(hosts)}, hosts: {len(hosts)}{axes}"


def _join(parts: Mapping[str, Stateful[State]]) -> State:
    return {key: value for name, part in parts.items() for key, value in prefixed(name, part.state_dict()).items()}


def _load(parts: Mapping[str, Stateful[State]], state: State) -> None:
    for name, part in parts.items():
        part.load_state_dict(part_of(state, name))
