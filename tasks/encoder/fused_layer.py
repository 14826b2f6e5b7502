"""BERT's layer for training on a CPU in bf16: forward and backward written out, little left beside matrix products.

The matrix products of a small encoder are 60 % of a step's forward and backward. Autograd's nodes, casting the same
value several times and dropout's noise are most of the rest: here half a layer is one node, a value is cast once and
noise is cheap. Between the halves, and in the norms, values stay fp32, as they do under autocast.
"""

from __future__ import annotations

import math
import types
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional
from transformers.models.bert.modeling_bert import BertLayer

from tasks.encoder.dropout import Noise

_aten = torch.ops.aten
Gradients = tuple[torch.Tensor | None, ...]


def fuse_layers(model: nn.Module) -> None:
    """Let a model's BERT layers go this way when they train on a CPU under bf16 autocast."""
    for layer in model.modules():
        if isinstance(layer, BertLayer) and layer.attention.self.config.hidden_act == "gelu":
            layer.forward = types.MethodType(_forward, layer)  # type: ignore[method-assign]


def _forward(layer: Any, hidden: torch.Tensor, mask: torch.Tensor | None = None, *others: Any, **more: Any) -> Any:
    half = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    usual = layer.attention.self.config._attn_implementation == "sdpa"  # whose mask is boolean
    if not (layer.training and half and usual and hidden.device.type == "cpu"):
        return BertLayer.forward(layer, hidden, mask, *others, **more)
    hidden = Attention.of(layer, hidden, mask, torch.bfloat16)
    return FeedForward.of(layer, hidden, torch.bfloat16)


class Attention(torch.autograd.Function):
    """Self-attention, its dropouts, the residual connection and the norm: hidden [batch, tokens, features] to hidden.

    The mask is [batch, 1, 1 or tokens, tokens], True where a token may look; None: everywhere.
    """

    @staticmethod
    def of(layer: Any, hidden: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        """What a BertLayer's attention makes of the hidden states, with matrix products in dtype."""
        own, out = layer.attention.self, layer.attention.output
        weights = (m.weight for m in (own.query, own.key, own.value))
        biases = (m.bias for m in (own.query, own.key, own.value))
        result: torch.Tensor = Attention.apply(  # type: ignore[no-untyped-call]
            hidden, mask, dtype, own.num_attention_heads, (own.dropout.p, out.dropout.p), out.LayerNorm.eps,
            *weights, *biases, out.dense.weight, out.dense.bias, out.LayerNorm.weight, out.LayerNorm.bias,
        )  # fmt: skip
        return result

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype, heads: int,
        rates: tuple[float, float], epsilon: float, *parameters: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Keep what backward needs."""
        *projections, out_weight, out_bias, norm_weight, norm_bias = parameters
        batch, tokens, features = hidden.shape
        ctx.shape, ctx.dtype, ctx.scale = (batch, tokens, heads, features // heads), dtype, (features // heads) ** -0.5
        noise = Noise()
        hidden = hidden.reshape(-1, features)
        narrow = hidden.to(dtype)
        weight, bias = torch.cat(projections[:3]).to(dtype), torch.cat(projections[3:]).to(dtype)
        projected = torch.addmm(bias, narrow, weight.t()).view(batch, tokens, 3, heads, -1)
        parts = projected.permute(2, 0, 3, 1, 4).reshape(3, batch * heads, tokens, -1)  # query, key, value
        scores = torch.bmm(parts[0], parts[1].transpose(1, 2)).mul_(ctx.scale)
        if mask is not None:
            scores.view(batch, heads, tokens, tokens).masked_fill_(~mask, -math.inf)
        probabilities = torch.softmax(scores, -1)
        looks = noise.draw(probabilities.shape, rates[0], dtype)
        seen = torch.bmm(probabilities * looks, parts[2])
        seen = seen.view(batch, heads, tokens, -1).transpose(1, 2).reshape(-1, features)
        out_weight = out_weight.to(dtype)
        kept = noise.draw(hidden.shape, rates[1], dtype)
        summed = torch.addmm(out_bias.to(dtype), seen, out_weight.t()).mul_(kept) + hidden
        result, mean, deviation = _aten.native_layer_norm(summed, [features], norm_weight, norm_bias, epsilon)
        ctx.save_for_backward(
            narrow, weight, parts, probabilities, looks, seen, out_weight, kept, summed, mean, deviation,
            norm_weight, norm_bias,
        )  # fmt: skip
        return cast(torch.Tensor, result.view(batch, tokens, features))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        """Gradients of the hidden states and of the parameters."""
        narrow, weight, parts, probabilities, looks, seen, out_weight, kept, summed, *norm = ctx.saved_tensors
        batch, tokens, heads, size = ctx.shape
        residual, *of_norm = _norm_backward(gradients[0], summed, *norm)
        out = residual.to(ctx.dtype) * kept
        of_seen = (out @ out_weight).view(batch, tokens, heads, size).transpose(1, 2).reshape(-1, tokens, size)
        of_parts = torch.empty_like(parts)
        torch.bmm((probabilities * looks).transpose(1, 2), of_seen, out=of_parts[2])
        of_probabilities = torch.bmm(of_seen, parts[2].transpose(1, 2)).mul_(looks)
        of_scores = _aten._softmax_backward_data(of_probabilities, probabilities, -1, ctx.dtype).mul_(ctx.scale)
        torch.bmm(of_scores, parts[1], out=of_parts[0])
        torch.bmm(of_scores.transpose(1, 2), parts[0], out=of_parts[1])
        projected = of_parts.view(3, batch, heads, tokens, size).permute(1, 3, 0, 2, 4).reshape(batch * tokens, -1)
        of_weights, of_biases = _linear_backward(projected, narrow)
        of_hidden = residual.add_(projected @ weight).view_as(gradients[0])
        return (
            of_hidden, None, None, None, None, None, *of_weights.chunk(3), *of_biases.chunk(3),
            *_linear_backward(out, seen), *of_norm,
        )  # fmt: skip


class FeedForward(torch.autograd.Function):
    """Two linear layers with GELU between, dropout, the residual connection and the norm: hidden to hidden."""

    @staticmethod
    def of(layer: Any, hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """What the rest of a BertLayer makes of the hidden states, with matrix products in dtype."""
        up, out = layer.intermediate.dense, layer.output
        result: torch.Tensor = FeedForward.apply(  # type: ignore[no-untyped-call]
            hidden, dtype, out.dropout.p, out.LayerNorm.eps,
            up.weight, up.bias, out.dense.weight, out.dense.bias, out.LayerNorm.weight, out.LayerNorm.bias,
        )  # fmt: skip
        return result

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, dtype: torch.dtype, rate: float, epsilon: float, *parameters: torch.Tensor
    ) -> torch.Tensor:
        """Keep what backward needs."""
        up, up_bias, down, down_bias, norm_weight, norm_bias = parameters
        shape, hidden = hidden.shape, hidden.reshape(-1, hidden.shape[-1])
        narrow, up, down = hidden.to(dtype), up.to(dtype), down.to(dtype)
        wide = torch.addmm(up_bias.to(dtype), narrow, up.t())
        active = functional.gelu(wide)
        kept = Noise().draw(hidden.shape, rate, dtype)
        summed = torch.addmm(down_bias.to(dtype), active, down.t()).mul_(kept) + hidden
        result, mean, deviation = _aten.native_layer_norm(summed, [shape[-1]], norm_weight, norm_bias, epsilon)
        ctx.save_for_backward(
            narrow, up, down, wide, active, kept, summed, mean, deviation, norm_weight, norm_bias
        )  # fmt: skip
        return cast(torch.Tensor, result.view(shape))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        """Gradients of the hidden states and of the parameters."""
        narrow, up, down, wide, active, kept, summed, *norm = ctx.saved_tensors
        residual, *of_norm = _norm_backward(gradients[0], summed, *norm)
        out = residual.to(kept.dtype) * kept
        of_wide = _aten.gelu_backward(out @ down, wide)
        of_hidden = residual.add_(of_wide @ up).view_as(gradients[0])
        return (
            of_hidden, None, None, None,
            *_linear_backward(of_wide, narrow), *_linear_backward(out, active), *of_norm,
        )  # fmt: skip


def _linear_backward(gradient: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of a linear layer's weight and bias, in fp32."""
    return (gradient.t() @ values).float(), gradient.sum(0, dtype=torch.float32)


def _norm_backward(
    gradient: torch.Tensor, values: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor,
    weight: torch.Tensor, bias: torch.Tensor,
) -> list[torch.Tensor]:  # fmt: skip
    """Gradients of a layer norm's input, weight and bias."""
    features = values.shape[-1:]
    of_all = [True, True, True]
    return list(
        _aten.native_layer_norm_backward(
            gradient.reshape(values.shape), values, features, mean, deviation, weight, bias, of_all
        )
    )
