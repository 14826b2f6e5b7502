"""A rank's place among the ranks of its training: which rows it computes, and which part of the model it has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from include.fields.ranks import Parallel
from tasks.communication import ranks

_T = TypeVar("_T")


class Mesh(NamedTuple):
    """The ranks as an array, whose last axis varies fastest."""

    data: int = 1  # copies of the model, which compute other rows
    pipeline: int = 1  # stages of a copy, each of which has some layers
    shard: int = 1  # ranks that keep parts of the same weights, and compute other rows
    tensor: int = 1  # ranks that compute parts of the same matrices


class Layout(NamedTuple):
    """This rank's place in the mesh."""

    rank: int  # its number among all ranks
    mesh: Mesh  # the size of each axis
    place: Mesh  # its number on each axis
    replicas: Any = None  # Horovod's process set along the axis data; None: these are all ranks, or only this one

    @property
    def world(self) -> int:
        """The number of ranks."""
        return math.prod(self.mesh)

    @property
    def leads(self) -> bool:
        """Whether this rank writes what is written once: metrics, model and values."""
        return self.rank == 0

    @property
    def divided(self) -> bool:
        """Whether a rank has only a part of the model."""
        return self.world > self.mesh.data

    @property
    def rows(self) -> int:
        """Which of the `row_parts` of each batch this rank computes."""
        return self.place.data * self.mesh.shard + self.place.shard

    @property
    def row_parts(self) -> int:
        """The number of parts into which a batch is divided."""
        return self.mesh.data * self.mesh.shard

    @property
    def random(self) -> int:
        """The number of this rank's random numbers. Ranks that compute the same layers of the same rows share it."""
        return self.rows * self.mesh.pipeline + self.place.pipeline

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank computes the top layers and the head."""
        return self.place.pipeline == self.mesh.pipeline - 1

    @property
    def counts(self) -> bool:
        """Whether this rank is the one of those with the same rows whose loss and tokens are counted."""
        return self.place.tensor == 0 and self.is_last_stage

    def share(self, batches: Sequence[_T]) -> list[_T]:
        """Return the batches of the dev split that this rank computes, in the order of the split."""
        # Ranks that gather weights from one another compute as many batches, for which some repeat another rank's.
        padding = -len(batches) % self.row_parts if self.mesh.shard > 1 else 0
        own = range(self.rows, len(batches) + padding, self.row_parts)
        return [batches[number % len(batches)] for number in own]


class Place(NamedTuple):
    """Where a part lies in its parameter."""

    offset: tuple[int, ...]  # of its first element in each dimension
    shape: tuple[int, ...]
    whole: tuple[int, ...]  # the shape of the parameter
    written: bool  # whether this rank is the one that writes the part, of which others may have copies


def flat() -> Layout:
    """Return the layout in which every rank has the whole model."""
    size, rank = ranks.size(), ranks.rank()
    return Layout(rank, Mesh(data=size), Mesh(rank, 0, 0, 0))


def layout_of(parallel: Parallel) -> Layout:
    """Return this rank's place. All ranks call it, after they have been counted (see tasks.launching.launch)."""
    if parallel.ranks == 1:
        return flat()
    rank, size = ranks.rank(), ranks.size()
    mesh = Mesh(size // parallel.ranks, parallel.pipeline, parallel.shard, parallel.tensor)
    place, rest = [], rank
    for length in reversed(mesh):
        rest, own = divmod(rest, length)
        place.append(own)
    layout = Layout(rank, mesh, Mesh(*reversed(place)))
    if mesh.data == 1:
        return layout
    from tasks.communication.link import process_set  # imports Horovod, which a single rank does not need

    sets = [process_set(range(first, size, parallel.ranks)) for first in range(parallel.ranks)]
    return layout._replace(replicas=sets[rank % parallel.ranks])
