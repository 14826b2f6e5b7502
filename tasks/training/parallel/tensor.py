"""Dividing matrices among ranks, by attention heads and features (Shoeybi et al. 2019), and word embeddings."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from include.stages import BadInput
from tasks.encoder.models import EncoderWithHead
from tasks.training.layers import layers_of


def _plan(column: tuple[str, ...], row: tuple[str, ...]) -> dict[str, type[ParallelStyle]]:
    return {**dict.fromkeys(column, ColwiseParallel), **dict.fromkeys(row, RowwiseParallel)}


_BERT = _plan(
    column=("attention.self.query", "attention.self.key", "attention.self.value", "intermediate.dense"),
    row=("attention.output.dense", "output.dense"),
)
_MPNET = _plan(
    column=("attention.attn.q", "attention.attn.k", "attention.attn.v", "intermediate.dense"),
    row=("attention.attn.o", "output.dense"),
)
_DISTILBERT = _plan(
    column=("attention.q_lin", "attention.k_lin", "attention.v_lin", "ffn.lin1"),
    row=("attention.out_lin", "ffn.lin2"),
)
#: The plan of a layer of each family.
PLANS = {
    **dict.fromkeys(("bert", "electra", "roberta", "xlm-roberta"), _BERT),
    "distilbert": _DISTILBERT,
    "mpnet": _MPNET,
}


def check_tensor(model: EncoderWithHead, size: int) -> None:
    """Raise BadInput if the encoder cannot be divided among this number of ranks."""
    config: Any = model.encoder.config
    kind = config.model_type
    if kind not in PLANS:
        raise BadInput(
            f"parallel.tensor does not know how to divide the layers of the encoder ({kind}), only those of "
            f"{', '.join(sorted(PLANS))}: write parallel.tensor: 1, and parallel.shard to save memory"
        )
    layer = layers_of(model.encoder)[0][0]
    features = [layer.get_submodule(name) for name, style in PLANS[kind].items() if style is ColwiseParallel]
    words = cast(nn.Embedding, model.encoder.get_input_embeddings())
    counts = {
        "attention heads": config.num_attention_heads,
        "features in its feed-forward network": cast(nn.Linear, features[-1]).out_features,
        "features of a word": words.embedding_dim,
    }
    for what, count in counts.items():
        if count % size:
            fitting = max(number for number in range(1, size) if count % number == 0)
            raise BadInput(
                f"parallel.tensor is {size}, but the encoder has {count} {what}, which is not a multiple of it: "
                f"write parallel.tensor: {fitting}, or another divisor of {count}"
            )


def divide_layers(model: EncoderWithHead, mesh: DeviceMesh) -> None:
    """Keep this rank's part of the matrices of each layer, and of the word embeddings, which are equal on all ranks."""
    encoder = model.encoder
    plan = PLANS[encoder.config.model_type]
    for (layer,) in layers_of(encoder):
        parallelize_module(layer, mesh, {name: style() for name, style in plan.items()})
    words = encoder.get_input_embeddings()
    if isinstance(words, nn.Embedding):
        parallelize_module(words, mesh, ColwiseParallel(output_layouts=Replicate()))
    if encoder.config.model_type == "mpnet":
        _divide_relative_positions(encoder, mesh)


def _divide_relative_positions(encoder: Any, mesh: DeviceMesh) -> None:
    """Give each rank the relative positions' scores of its attention heads. Gradients come from all ranks."""
    stack = encoder.encoder
    whole = stack.compute_position_bias

    def of_own_heads(*values: Any, **more: Any) -> torch.Tensor:
        scores = DTensor.from_local(whole(*values, **more), mesh, [Replicate()])
        return scores.redistribute(placements=[Shard(1)]).to_local()

    stack.compute_position_bias = of_own_heads
    for layer in stack.layer:
        layer.attention.attn.all_head_size //= mesh.size()
