"""A hundredth of the bytes: every matrix becomes a product of two narrow ones, which are summed over the ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tasks.communication.compression.base import ErrorFeedback
from tasks.communication.link import Link
from tasks.communication.state import State

SEED = 1905  # all ranks draw the same first bases


class PowerSGD(ErrorFeedback):
    """One power iteration per training step, which starts at the basis of the last step (Vogels et al. 2019).

    This is their algorithm 1. For a matrix M [rows, columns] of gradient plus residual and the basis Q [columns,
    rank]: P = sum of M Q over the ranks, with orthonormal columns; Q = sum of M^T P; the sum of M is about P Q^T. A
    rank has therefore sent P P^T M of its own M. Matrices that would not become smaller are sent whole with P.
    """

    def __init__(self, name: str, shapes: Sequence[torch.Size], link: Link, device: torch.device, rank: int) -> None:
        super().__init__(name, shapes, link, device)
        self._flat = [(shape[0], shape[1:].numel()) for shape in shapes]
        self._narrow = [(rows + columns) * rank < rows * columns for rows, columns in self._flat]
        packed = [shape for shape, narrow in zip(self._flat, self._narrow, strict=True) if narrow]
        self._whole_shapes = [shape for shape, narrow in zip(self._flat, self._narrow, strict=True) if not narrow]
        self._left_shapes = [(rows, rank) for rows, _ in packed]
        self._basis_shapes = [(columns, rank) for _, columns in packed]
        size = sum(columns * rank for columns, _ in self._basis_shapes)
        self.basis = torch.randn(size, generator=torch.Generator().manual_seed(SEED)).to(device)
        self._basis_before = self.basis
        self._lefts: list[torch.Tensor] = []

    def start(self, gradient: torch.Tensor) -> None:
        """Send M Q and the whole matrices."""
        self._wanted = gradient.add_(self.residual)
        packed, whole = self._matrices(self._wanted)
        # The basis must be orthonormal, or P would be a product of M and M^T.
        bases = [torch.linalg.qr(basis).Q for basis in self._bases()]
        lefts = [matrix @ basis for matrix, basis in zip(packed, bases, strict=True)]
        self._handle = self.link.all_reduce(_join([*lefts, *whole], self.device), f"{self.name}.left")

    def proceed(self) -> None:
        """Send M^T P. The residual is M - P P^T M."""
        sums = _split(self.link.wait(self._handle), [*self._left_shapes, *self._whole_shapes])
        self._lefts = [torch.linalg.qr(left).Q for left in sums[: len(self._left_shapes)]]  # which works for zeros
        self._wholes = sums[len(self._left_shapes) :]
        packed, _ = self._matrices(self._wanted)
        bases = [matrix.T @ left for matrix, left in zip(packed, self._lefts, strict=True)]
        self.keep(self._missed(bases))
        self._handle = self.link.all_reduce(_join(bases, self.device), f"{self.name}.basis")

    def finish(self) -> torch.Tensor:
        """Return P Q^T and the sums of the whole matrices."""
        self._basis_before, self.basis = self.basis, self.link.wait(self._handle)
        packed, whole = self._matrices(self._wanted)  # the sums overwrite them
        for matrix, left, basis in zip(packed, self._lefts, self._bases(), strict=True):
            torch.mm(left, basis.T, out=matrix)
        for matrix, total in zip(whole, self._wholes, strict=True):
            matrix.copy_(total)
        return self._wanted

    def discard_step(self) -> None:
        """Restore residual and basis."""
        super().discard_step()
        self.basis = self._basis_before

    def state_dict(self) -> State:
        """Return residual and basis."""
        return {**super().state_dict(), "basis": self.basis}

    def load_state_dict(self, state: State) -> None:
        """Replace residual and basis."""
        super().load_state_dict(state)
        self.basis = state["basis"].to(self.device)

    def _bases(self) -> list[torch.Tensor]:
        return _split(self.basis, self._basis_shapes)

    def _missed(self, bases: list[torch.Tensor]) -> torch.Tensor:
        residual = self._wanted.clone()
        packed, whole = self._matrices(residual)
        for matrix, left, basis in zip(packed, self._lefts, bases, strict=True):
            matrix.addmm_(left, basis.T, alpha=-1)
        for matrix in whole:
            matrix.zero_()
        return residual

    def _matrices(self, flat: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        chosen = list(zip(_split(flat, self._flat), self._narrow, strict=True))
        return [view for view, narrow in chosen if narrow], [view for view, narrow in chosen if not narrow]


def _split(flat: torch.Tensor, shapes: Sequence[tuple[int, int]]) -> list[torch.Tensor]:
    pieces = torch.split(flat, [rows * columns for rows, columns in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _join(matrices: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    return torch.cat([torch.empty(0, device=device), *(matrix.flatten() for matrix in matrices)])
