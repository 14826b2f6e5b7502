"""Keeping a part of every weight, and gathering those of a layer when it is computed (FSDP2; Zhao et al. 2023)."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from tasks.encoder.models import EncoderWithHead
from tasks.training.layers import layers_of


def shard(model: EncoderWithHead, mesh: DeviceMesh) -> None:
    """Keep this rank's part of all parameters.

    Args:
        model: the model, with equal weights on all ranks; its matrices may be divided already.
        mesh: the axis of the ranks that share the weights.
    """
    units = [part for layer in layers_of(model.encoder) for part in layer]
    embeddings = getattr(model.encoder, "embeddings", None)
    for unit in [*([embeddings] if embeddings is not None else []), *units, model]:
        # The losses of a batch are weighted so that they add up; torch would take the mean over the ranks.
        sharded = fully_shard(unit, mesh=mesh, reshard_after_forward=True)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # Gloo has no other
