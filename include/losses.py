"""The losses of fine-tuning. A new loss is a row here, and its function a row of LOSSES in tasks/training/loss.py."""

from __future__ import annotations

from include.glue import Kind

#: The name of each loss, and the kinds of tasks that it is for. The first one of each kind is that kind's default.
LOSSES: dict[str, tuple[Kind, ...]] = {
    "cross-entropy": ("classification",),
    "binary-cross-entropy": ("multilabel",),
    "focal": ("classification", "multilabel"),
    "mse": ("regression",),
    "huber": ("regression",),
}


def losses_for(kind: Kind) -> list[str]:
    """Return the names of the losses for a kind of tasks, its default first."""
    return [name for name, kinds in LOSSES.items() if kind in kinds]
