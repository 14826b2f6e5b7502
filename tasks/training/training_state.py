"""What a checkpoint holds of a training, as named parts, and how a training continues from it.

A checkpoint is written after a step's update and before its evaluation, which is repeated. On the same layout (the
number of ranks on each host) and with the same number of threads, the losses from there on equal those of an
uninterrupted training to the bit. On another layout,

- weights, optimizer, loss scale, sampler, best model and metrics.jsonl continue unchanged: batches hold the same rows;
- the state of the exchange, such as the residuals of compressors, is redistributed to the new ranks
  (Exchange.redistribute), and a warning names what is dropped or missing.

With another world size, moreover,

- the random numbers of every rank are seeded anew, from the seed, its rank and the step;
- the mean loss in the next line of metrics.jsonl covers the steps since the checkpoint only.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from include.artifacts import sha256
from include.stages import BadInput, non_defaults
from tasks.communication.state import State, Stateful
from tasks.training.checkpoint import Checkpoints, Snapshot
from tasks.training.job import Job

log = logging.getLogger(__name__)
#: Raised when a checkpoint's parts change, so that a checkpoint of older code is set aside and not misread.
FORMAT = "2"
#: The sections of the experiment that the engine reads.
SECTIONS = ("model", "pretraining", "batching", "loss", "training", "communication")


def identity(job: Job) -> dict[str, str]:
    """Return what a checkpoint must share with the training that continues from it.

    These are hashes of the data and of the experiment without the number of ranks, and the checkpoint's format. Fields
    with default values stay out, so that a new field does not make a checkpoint useless.
    """
    config = non_defaults(job.experiment, SECTIONS)
    config.pop("training.ranks", None)
    data = {str(file.relative_to(job.data)): sha256(file) for file in sorted(job.data.rglob("*.arrow"))}
    return {"format": FORMAT, "config": _hash(config), "data": _hash(data)}


@dataclass(frozen=True)
class TrainingState:
    """Everything that the next step depends on, in named parts.

    Attributes:
        shared: parts whose tensors are equal on all ranks.
        per_rank: parts whose tensors belong to a rank, and are valid for every layout of the same world size.
        per_layout: parts whose tensors belong to a rank of one layout, and are redistributed for another one. They
            are loaded in this order.
        values: parts that JSON can hold, equal on all ranks.
        redistribute: makes this rank's state of one part out of the states of all ranks of another layout.
        random: the one of `per_rank` with this rank's random numbers, which another world size seeds anew.
        hosts: the layout, as the number of ranks on each host.
        rank: this rank's number.
        identity: what a checkpoint must share with the training that continues from it.
    """

    shared: Mapping[str, Stateful[State]]
    per_rank: Mapping[str, Stateful[State]]
    per_layout: Mapping[str, Stateful[State]]
    values: Mapping[str, Stateful[Any]]
    redistribute: Callable[[Sequence[State]], State]
    random: RandomState
    hosts: list[int]
    rank: int
    identity: dict[str, str]

    def snapshot(self) -> Snapshot:
        """Return the state of all parts."""
        values = {name: part.state_dict() for name, part in self.values.items()}
        own = {**_join(self.per_rank), **_join(self.per_layout)}
        return Snapshot(_join(self.shared), own, {**self.identity, **values, "hosts": self.hosts})

    def restore(self, checkpoints: Checkpoints, step: int) -> None:
        """Load the state of all parts from the checkpoint of a step.

        Raises:
            BadInput: the checkpoint lacks something that every checkpoint of this layout has.
        """
        try:
            self._restore(checkpoints, step)
        except KeyError as error:
            raise BadInput(
                f"the checkpoint of step {step} in {checkpoints.folder} lacks {error}: "
                "remove that checkpoint's folder, and run the stage again"
            ) from error

    def _restore(self, checkpoints: Checkpoints, step: int) -> None:
        values = checkpoints.values(step)
        _load(self.shared, checkpoints.shared(step, self.random.device))
        for name, part in self.values.items():
            part.load_state_dict(values[name])
        hosts: list[int] = values["hosts"]
        own = self._own(checkpoints, step, self.rank) if sum(hosts) == sum(self.hosts) else None
        if own is None:
            self.random.reseed(step)
        else:
            _load(self.per_rank, own)
        if own is None or hosts != self.hosts:
            own = self._redistributed([self._own(checkpoints, step, rank) for rank in range(sum(hosts))])
            if self.rank == 0:
                before, now = describe_layout(hosts), describe_layout(self.hosts)
                log.warning("the layout was (%s) and is now (%s): losses will differ slightly", before, now)
        _load(self.per_layout, own)

    def _own(self, checkpoints: Checkpoints, step: int, rank: int) -> State:
        return checkpoints.own(step, rank, self.random.device)

    def _redistributed(self, states: list[State]) -> State:
        own: State = {}
        for name in self.per_layout:
            part = self.redistribute([_select(name, state) for state in states])
            own |= {f"{name}.{key}": tensor for key, tensor in part.items()}
        return own


class Weights:
    """Parameters and buffers of a module as state; one that has two names is kept once."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def state_dict(self) -> State:
        """Return the tensors themselves, by name."""
        return {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}

    @torch.no_grad()
    def load_state_dict(self, state: State) -> None:
        """Copy the values into the module's tensors."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


class RandomState:
    """The random-number generators that dropout draws from, on the CPU and on the rank's GPU.

    Attributes:
        device: the rank's device.
    """

    def __init__(self, device: torch.device, seed: int, rank: int) -> None:
        self.device, self._seed, self._rank = device, seed, rank

    def state_dict(self) -> State:
        """Return the generators' states."""
        state = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def load_state_dict(self, state: State) -> None:
        """Set the generators to these states."""
        torch.set_rng_state(state["cpu"].cpu())
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"].cpu(), self.device)

    def reseed(self, step: int) -> None:
        """Seed the generators from the training's seed, the rank and the step."""
        seeds = np.random.SeedSequence([self._seed, self._rank, step])
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0] >> 1))


def describe_layout(hosts: Sequence[int]) -> str:
    """Return a layout in words, as "ranks: 3, hosts: 2"."""
    return f"ranks: {sum(hosts)}, hosts: {len(hosts)}"


def _join(parts: Mapping[str, Stateful[State]]) -> State:
    return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}


def _select(name: str, state: State) -> State:
    return {key.removeprefix(f"{name}."): value for key, value in state.items() if key.startswith(f"{name}.")}


def _load(parts: Mapping[str, Stateful[State]], state: State) -> None:
    for name, part in parts.items():
        part.load_state_dict(_select(name, state))


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
