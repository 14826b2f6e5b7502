"""What the training loop asks of communication, and its answer for a single rank."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import nn

from tasks.communication.compression.base import State
from tasks.encoder.models import EncoderWithHead

log = logging.getLogger(__name__)
Kind = Literal["embeddings", "matrices", "rest"]
Parameters = dict[str, torch.Tensor]


class Exchange:
    """A way of communicating, called in this order at every step. This one is a single rank's: there is nobody else.

    Attributes:
        parameters: by name, the tensors that this rank's optimizer updates.
        sharded: whether they are a part of the model's parameters, another one on every rank.
    """

    sharded = False

    def __init__(self, model: nn.Module) -> None:
        self.parameters: Parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.loss_scale, self.stop = 1.0, False

    def begin(self, step: int, loss_scale: float, stop: bool) -> None:
        """Before backward: the step's number, what the loss is scaled by, and whether this rank was asked to stop."""
        self.loss_scale, self.stop = loss_scale, stop

    def send_next(self) -> None:
        """The next backward is the step's last one: gradients may leave while it runs."""

    def synchronize(self) -> bool:
        """Put the ranks' sum, free of the loss scale, into the parameters' grad; whether any rank is to stop."""
        for parameter in self.parameters.values():
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
            if parameter.grad is not None and self.loss_scale != 1:
                parameter.grad /= self.loss_scale
        return self.stop

    def norm(self) -> float:
        """Norm of the whole model's gradient, equal on all ranks."""
        return float(total_norm(self.parameters))

    def forget(self) -> None:
        """The step is skipped, its gradient not used."""

    def distribute(self) -> None:
        """Hand out what the optimizer has updated here."""

    def settle(self) -> None:
        """The model will be read, not by a step's forward: put in what the others have handed out."""

    def hand_out_rows(self) -> None:
        """All rows of word embeddings, after the optimizer has caught up those that this rank serves."""

    def bytes(self) -> dict[Kind, int]:
        """Received so far by this rank (see Link)."""
        return {"embeddings": 0, "matrices": 0, "rest": 0}

    def state(self) -> State:
        """What this rank's next step depends on, for a checkpoint."""
        return {}

    def load(self, state: State) -> None:
        """Take over what state gave."""

    def regroup(self, states: Sequence[State]) -> State:
        """What to load here, of the states of other ranks or of ranks on other hosts; also of a sharded optimizer's."""
        warn_of_changes(own={}, before=states[0])
        return {}


def warn_of_changes(own: State, before: State) -> None:
    """Say what compressors lack, or have no use for, of the state that ranks of another layout had."""
    dropped, lacking = ", ".join(sorted(before.keys() - own.keys())), ", ".join(sorted(own.keys() - before.keys()))
    if dropped:
        log.warning("nothing is compressed from here on, so that this is dropped: %s", dropped)
    if lacking:
        log.warning("nothing was compressed before, so that this begins anew: %s", lacking)


def by_kind(model: EncoderWithHead) -> dict[Kind, Parameters]:
    """The trained parameters: word embeddings with row-sparse gradients, the encoder's matrices, and all others."""
    words = model.encoder.get_input_embeddings()
    kinds: dict[Kind, Parameters] = {"embeddings": {}, "matrices": {}, "rest": {}}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter is words.weight and words.sparse:
            kinds["embeddings"][name] = parameter
        elif parameter.ndim > 1 and name.startswith("encoder."):
            kinds["matrices"][name] = parameter
        else:
            kinds["rest"][name] = parameter
    return kinds


def total_norm(parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Norm of all gradients as one vector; sparse ones are coalesced."""
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    return nn.utils.get_total_norm([g.values() if g.is_sparse else g for g in gradients])
