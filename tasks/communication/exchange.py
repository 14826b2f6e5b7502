"""What the loop asks of gradient synchronization, its implementation for a single rank, and buckets of gradients."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import nn

from tasks.communication.state import State
from tasks.encoder.models import EncoderWithHead
from tasks.kernels.library import call, computes, gradient_table

if TYPE_CHECKING:
    # These import Horovod, which a single rank does not need.
    from tasks.communication.link import Link
    from tasks.communication.shared_memory import Host


log = logging.getLogger(__name__)
BUCKET_BYTES = 16 * 2**20  # of fp32 gradients: large enough for the link, small enough to overlap with backward
Kind = Literal["embeddings", "matrices", "rest"]
Parameters = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Owned:
    """A parameter that the ranks of a host keep once, in memory that they share; each of them updates a piece of it."""

    piece: torch.Tensor  # this rank's part of the flattened parameter, fp32 [n]; n may be 0
    mean: torch.Tensor  # the first moment of the whole parameter, in its shape, which the ranks also share
    square: torch.Tensor  # the second moment
    part: slice  # where the piece lies in the flattened parameter, and this rank's part of the moments in theirs


class Exchange(ABC):
    """Synchronizes gradients, and parameters where these are sharded, over the ranks of a training.

    At every step, the loop calls `begin_step`, `sync_next_backward` before the backward pass of the last micro-batch,
    `synchronize_gradients` and `norm` after it, then `send_parameters`, or `discard_step` where the step is skipped.
    Before anything but a forward pass reads the weights, it calls `receive_parameters`, lets the optimizer catch up,
    and calls `gather_embeddings`. Every method may communicate, so all ranks call all of them.
    """

    sharded = False  # whether `parameters` are another part of the model's parameters on every rank
    parameters: Parameters  # the tensors that this rank's optimizer updates, by name
    owned: Mapping[str, Owned]  # those of which it updates a piece, by name; their gradients are those of the pieces
    copies: Mapping[str, torch.Tensor]  # weights rounded to bf16, by name, which the optimizer keeps as new as these
    _links: Mapping[Kind, Link]
    _norm: float | None = None  # where it is known when the gradients are synchronized

    def __init__(self, model: nn.Module) -> None:
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.owned, self.copies, self._links = {}, {}, {}
        self.loss_scale, self.stop, self._sending = 1.0, False, False

    def begin_step(self, step: int, loss_scale: float, stop: bool) -> None:
        """Begin a step, counted from 1; `stop` says whether this rank was asked to stop after it."""
        self.loss_scale, self.stop, self._sending = loss_scale, stop, False

    def sync_next_backward(self) -> None:
        """Allow gradients to be sent while the next backward pass, the last one of the step, still runs."""
        self._sending = True

    @abstractmethod
    def synchronize_gradients(self) -> bool:
        """Replace gradients by their sums without the loss scale; return whether any rank was asked to stop."""

    def norm(self) -> float | torch.Tensor:
        """Return the norm of the whole model's gradient, equal on all ranks."""
        return float(total_norm(self.parameters)) if self._norm is None else self._norm

    def discard_step(self) -> None:  # noqa: B027  # most have no state that the gradient could have spoilt
        """Undo what the step's gradient changed in this object's state, because the step is skipped."""

    def send_parameters(self) -> None:  # noqa: B027  # only those that one rank updates for others
        """Start to send the parameters that the optimizer has updated here to the other ranks."""

    def receive_parameters(self) -> None:  # noqa: B027
        """Wait for the parameters that other ranks have sent, and copy them into the model."""

    def gather_embeddings(self) -> None:  # noqa: B027
        """Copy all rows of sharded word embeddings into the model, after the optimizer has caught up its own."""

    def bytes_received(self) -> dict[Kind, int]:
        """Return the bytes received so far (see Link), with hosts those between them, by kind of parameter."""
        return {kind: self._links[kind].bytes if kind in self._links else 0 for kind in get_args(Kind)}

    def state_dict(self) -> State:
        """Return what this rank's next step depends on."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Replace the state by one that `state_dict` or `redistribute` returned, after the weights were replaced."""
        self._round_weights()

    def redistribute(self, states: Sequence[State]) -> State:
        """Return this rank's part of the states of another layout's ranks, in their order; warn of what is dropped."""
        self.warn_of_changes(own={}, before=states[0])
        return {}

    @staticmethod
    def warn_of_changes(own: State, before: State) -> None:
        """Log what compressors lack, or can no longer use, of the state that the ranks of another layout had."""
        dropped, lacking = ", ".join(sorted(before.keys() - own.keys())), ", ".join(sorted(own.keys() - before.keys()))
        if dropped:
            log.warning("nothing is compressed from here on; this state of the compressors is dropped: %s", dropped)
        if lacking:
            log.warning("nothing was compressed before; this state of the compressors starts at zero: %s", lacking)

    def _keep_copies(self, names: Collection[str], host: Host | None = None) -> None:
        """Keep copies of the trained weights among these, one after the other, in the host's memory if it is given."""
        weights = {name: weight for name, weight in self.parameters.items() if name in names}
        if not weights:
            return
        sizes = [weight.numel() for weight in weights.values()]
        memory = host.take(sum(sizes), torch.bfloat16) if host else torch.empty(sum(sizes), dtype=torch.bfloat16)
        pieces = zip(weights.items(), torch.split(memory, sizes), strict=True)
        self.copies = {name: piece.view_as(weight) for (name, weight), piece in pieces}
        self._round_weights()

    def _round_weights(self) -> None:
        for name, copy in self.copies.items():
            copy.copy_(self.parameters[name].detach())


class SingleRank(Exchange):
    """The only rank of a training: it exchanges nothing. With `on_device`, Python does not wait for the norm."""

    def __init__(self, model: nn.Module, on_device: bool = False, copies: Collection[str] = ()) -> None:
        """Keep copies in bf16 of these weights, by name."""
        super().__init__(model)
        self._on_device = on_device
        self._keep_copies(copies)

    def synchronize_gradients(self) -> bool:
        """Divide the gradients by the loss scale."""
        for parameter in self.parameters.values():
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            if parameter.grad is not None and self.loss_scale != 1:
                parameter.grad /= self.loss_scale
        return self.stop

    def norm(self) -> float | torch.Tensor:
        """Return the norm of the whole model's gradient."""
        return total_norm(self.parameters) if self._on_device else super().norm()


def by_kind(model: EncoderWithHead) -> dict[Kind, Parameters]:
    """Group the trained parameters by how they are exchanged; "embeddings" have row-sparse gradients."""
    words, prefix = model.encoder.get_input_embeddings(), model.encoder_prefix
    kinds: dict[Kind, Parameters] = {"embeddings": {}, "matrices": {}, "rest": {}}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter is words.weight and words.sparse:
            kinds["embeddings"][name] = parameter
        elif parameter.ndim > 1 and name.startswith(prefix):
            kinds["matrices"][name] = parameter
        else:
            kinds["rest"][name] = parameter
    return kinds


def total_norm(parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the norm of all gradients taken as one vector. Sparse gradients must be coalesced."""
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    values = [gradient.values() if gradient.is_sparse else gradient for gradient in gradients]
    if not computes(*values):
        return nn.utils.get_total_norm(values)
    result = torch.empty((), dtype=torch.float64)
    call("norm", None, len(values), gradient_table(values), result)
    return result


class GradientBuffer:
    """One flat fp32 tensor that holds the gradients of some parameters, in their order."""

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        send: Callable[[torch.Tensor], None],
        multiple: int = 1,
        flat: torch.Tensor | None = None,
    ) -> None:
        """Call `send` with the full buffer: `flat`, or one of a length that zeros make a multiple of `multiple`."""
        self.parameters = tuple(parameters)
        self._send = send
        self._sizes = [parameter.numel() for parameter in parameters]
        padded = -(-sum(self._sizes) // multiple) * multiple
        self._flat = torch.zeros(padded, device=self.parameters[0].device) if flat is None else flat
        self._places = self.views(self._flat)
        self._waiting = set(parameters)

    def add(self, parameter: torch.Tensor, factor: float) -> None:
        """Move a parameter's gradient, fp32 or bf16, times a factor, into the buffer; send a full buffer."""
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            self._places[parameter].zero_()
        elif factor == 1:
            self._places[parameter].copy_(gradient)
        else:
            torch.mul(gradient.float(), factor, out=self._places[parameter])
        self._waiting.discard(parameter)
        if not self._waiting:
            self._send(self._flat)

    def complete(self, factor: float) -> None:
        """Add the gradients that this rank's backward pass did not reach, and prepare for the next step."""
        for parameter in tuple(self._waiting):
            self.add(parameter, factor)
        self._waiting = set(self.parameters)

    def views(self, flat: torch.Tensor) -> dict[torch.Tensor, torch.Tensor]:
        """Return views of a tensor as long as the buffer: by parameter, its part of the tensor in its shape."""
        pieces = torch.split(flat[: sum(self._sizes)], self._sizes)
        return {p: piece.view_as(p) for p, piece in zip(self.parameters, pieces, strict=True)}


def group_by_size(parameters: Iterable[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Group parameters, from the last to the first as the backward pass reaches them, by about BUCKET_BYTES."""
    groups: list[list[torch.Tensor]] = []
    size = BUCKET_BYTES
    for parameter in reversed(list(parameters)):
        if size + parameter.numel() * 4 > BUCKET_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(parameter)
        size += parameter.numel() * 4
    return groups
