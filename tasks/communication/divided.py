"""The exchange of a model that is divided among ranks: Horovod sums the gradients of equal parts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from tasks.communication.buckets import GradientBuffer, group_by_size
from tasks.communication.exchange import Exchange, Kind, by_kind, total_norm, warn_of_changes
from tasks.communication.layout import Layout
from tasks.communication.link import Handle, Link
from tasks.communication.parts import Part
from tasks.communication.ranks import sum_over_ranks
from tasks.communication.state import State
from tasks.encoder.models import EncoderWithHead


class DividedModel(Exchange):
    """Sums the gradients of this rank's parts over the ranks with the same parts, after the last backward pass.

    Backward passes of a pipeline fire the hooks of a parameter once per micro-batch, so nothing is sent earlier.
    """

    def __init__(self, model: EncoderWithHead, parts: Mapping[str, Part], layout: Layout) -> None:
        """Synchronize the gradients of the model's trained parameters, of which these are this rank's parts."""
        super().__init__(model)
        self._layout = layout
        self._parts = {name: part for name, part in parts.items() if part.parameter.requires_grad}
        self.parameters = {name: part.values for name, part in self._parts.items()}
        self._links: dict[Kind, Link] = {}
        self._buckets: list[Bucket] = []
        sent = by_kind(model) if layout.mesh.data > 1 else {}  # nobody has another copy of a single one's parts
        for kind, named in sent.items():
            own = [self.parameters[name] for name in named if name in self.parameters]
            self._links[kind] = Link(layout.replicas)
            groups = group_by_size(own)
            self._buckets += [Bucket(f"{kind}.{n}", group, self._links[kind]) for n, group in enumerate(groups)]
        self._norm = math.nan

    def sync_next_backward(self) -> None:
        """Do nothing."""

    def synchronize_gradients(self) -> bool:
        """Sum the gradients, and exchange the norm and the requests to stop with all ranks."""
        for part in self._parts.values():
            part.take_gradient()
            if not self._buckets and part.values.grad is not None and self.loss_scale != 1:
                part.values.grad /= self.loss_scale
        for bucket in self._buckets:
            bucket.gradients.complete(1 / self.loss_scale)
        for bucket in self._buckets:
            bucket.receive()
        squares, stop_requests = sum_over_ranks([self._square(), float(self.stop)], "norm")
        self._norm = math.sqrt(squares / self._layout.mesh.data)
        return stop_requests > 0

    def norm(self) -> float:
        """Return the norm of the whole model's gradient."""
        return self._norm

    def bytes_received(self) -> dict[Kind, int]:
        """Return bytes by kind of parameter: of the gradients of equal parts, not what the passes exchange."""
        nothing: dict[Kind, int] = {"embeddings": 0, "matrices": 0, "rest": 0}
        return {**nothing, **{kind: link.bytes for kind, link in self._links.items()}}

    def state_dict(self) -> State:
        """Return an empty state."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Do nothing."""

    def redistribute(self, states: Sequence[State]) -> State:
        """Return an empty state."""
        warn_of_changes(own={}, before=states[0])
        return {}

    def _square(self) -> float:
        """Return this rank's share of the squared norm, to which all that have copies of a part contribute alike."""
        groups: dict[int, dict[str, torch.Tensor]] = defaultdict(dict)
        for name, part in self._parts.items():
            groups[part.copies][name] = part.values
        return sum(float(total_norm(group)) ** 2 / copies for copies, group in groups.items())


class Bucket:
    """Parts whose gradients are sent together.

    Attributes:
        gradients: the buffer that is sent when it is complete.
    """

    def __init__(self, name: str, parts: Sequence[torch.Tensor], link: Link) -> None:
        self.gradients = GradientBuffer(parts, self._send)
        self._start = partial(link.all_reduce, name=f"divided.{name}")
        self._link, self._flat = link, torch.zeros(0)
        self._handle: Handle = -1

    def receive(self) -> None:
        """Wait for the sums, and make them the parts' gradients."""
        self._link.wait(self._handle)
        for part, gradient in self.gradients.views(self._flat).items():
            part.grad = gradient

    def _send(self, flat: torch.Tensor) -> None:
        self._flat, self._handle = flat, self._start(flat)
