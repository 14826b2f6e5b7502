"""BERT's layer for training on a CPU in bf16, with hand-written forward and backward passes.

For a small encoder, matrix products take only 60 % of the time of forward and backward. Most of the rest is overhead of
autograd, repeated casts of the same values and random numbers for dropout. Here, each half of a layer is a single
autograd node, every value is cast once, and dropout is cheap. Between the halves and in layer normalization values stay
in fp32, as they do under autocast.
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
    """Make the BERT layers of a model use the fused passes when they train on a CPU under bf16 autocast.

    Layers with another activation than GELU are left unchanged.
    """
    for layer in model.modules():
        if isinstance(layer, BertLayer) and layer.attention.self.config.hidden_act == "gelu":
            layer.forward = types.MethodType(_forward, layer)  # type: ignore[method-assign]


def _forward(layer: Any, hidden: torch.Tensor, mask: torch.Tensor | None = None, *others: Any, **more: Any) -> Any:
    bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    sdpa = layer.attention.self.config._attn_implementation == "sdpa"  # Only this implementation has a boolean mask.
    if not (layer.training and bf16 and sdpa and hidden.device.type == "cpu"):
        return BertLayer.forward(layer, hidden, mask, *others, **more)
    hidden = Attention.of(layer, hidden, mask, torch.bfloat16)
    return FeedForward.of(layer, hidden, torch.bfloat16)


class Attention(torch.autograd.Function):
    """The first half of a layer: self-attention, dropout, the residual connection and layer normalization."""

    @staticmethod
    def of(layer: Any, hidden: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
        """Compute the output of a BertLayer's attention.

        Args:
            layer: the BertLayer that holds the parameters.
            hidden: hidden states, [batch, tokens, features].
            mask: True where a token may attend to another one, [batch, 1, 1 or tokens, tokens]; None if every token
                may attend to all.
            dtype: the type of the matrix products.

        Returns:
            Hidden states, [batch, tokens, features].
        """
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
        """Compute the output and keep what the backward pass needs."""
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
        attention_noise = noise.draw(probabilities.shape, rates[0], dtype)
        context = torch.bmm(probabilities * attention_noise, parts[2])
        context = context.view(batch, heads, tokens, -1).transpose(1, 2).reshape(-1, features)
        out_weight = out_weight.to(dtype)
        output_noise = noise.draw(hidden.shape, rates[1], dtype)
        summed = torch.addmm(out_bias.to(dtype), context, out_weight.t()).mul_(output_noise) + hidden
        result, mean, deviation = _aten.native_layer_norm(summed, [features], norm_weight, norm_bias, epsilon)
        ctx.save_for_backward(
            narrow, weight, parts, probabilities, attention_noise, context, out_weight, output_noise, summed, mean,
            deviation, norm_weight, norm_bias,
        )  # fmt: skip
        return cast(torch.Tensor, result.view(batch, tokens, features))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        """Return the gradients of the arguments of forward, in the same order."""
        (
            narrow, weight, parts, probabilities, attention_noise, context, out_weight, output_noise, summed, *norm
        ) = ctx.saved_tensors  # fmt: skip
        batch, tokens, heads, size = ctx.shape
        residual, *of_norm = _norm_backward(gradients[0], summed, *norm)
        out = residual.to(ctx.dtype) * output_noise
        of_context = (out @ out_weight).view(batch, tokens, heads, size).transpose(1, 2).reshape(-1, tokens, size)
        of_parts = torch.empty_like(parts)
        torch.bmm((probabilities * attention_noise).transpose(1, 2), of_context, out=of_parts[2])
        of_probabilities = torch.bmm(of_context, parts[2].transpose(1, 2)).mul_(attention_noise)
        of_scores = _aten._softmax_backward_data(of_probabilities, probabilities, -1, ctx.dtype).mul_(ctx.scale)
        torch.bmm(of_scores, parts[1], out=of_parts[0])
        torch.bmm(of_scores.transpose(1, 2), parts[0], out=of_parts[1])
        projected = of_parts.view(3, batch, heads, tokens, size).permute(1, 3, 0, 2, 4).reshape(batch * tokens, -1)
        of_weights, of_biases = _linear_backward(projected, narrow)
        of_hidden = residual.add_(projected @ weight).view_as(gradients[0])
        return (
            of_hidden, None, None, None, None, None, *of_weights.chunk(3), *of_biases.chunk(3),
            *_linear_backward(out, context), *of_norm,
        )  # fmt: skip


class FeedForward(torch.autograd.Function):
    """The second half of a layer: the feed-forward network, dropout, the residual connection and normalization."""

    @staticmethod
    def of(layer: Any, hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Compute the output of a BertLayer from the output of its attention.

        Args:
            layer: the BertLayer that holds the parameters.
            hidden: hidden states, [batch, tokens, features].
            dtype: the type of the matrix products.

        Returns:
            Hidden states, [batch, tokens, features].
        """
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
        """Compute the output and keep what the backward pass needs."""
        up, up_bias, down, down_bias, norm_weight, norm_bias = parameters
        shape, hidden = hidden.shape, hidden.reshape(-1, hidden.shape[-1])
        narrow, up, down = hidden.to(dtype), up.to(dtype), down.to(dtype)
        wide = torch.addmm(up_bias.to(dtype), narrow, up.t())
        active = functional.gelu(wide)
        noise = Noise().draw(hidden.shape, rate, dtype)
        summed = torch.addmm(down_bias.to(dtype), active, down.t()).mul_(noise) + hidden
        result, mean, deviation = _aten.native_layer_norm(summed, [shape[-1]], norm_weight, norm_bias, epsilon)
        ctx.save_for_backward(
            narrow, up, down, wide, active, noise, summed, mean, deviation, norm_weight, norm_bias
        )  # fmt: skip
        return cast(torch.Tensor, result.view(shape))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        """Return the gradients of the arguments of forward, in the same order."""
        narrow, up, down, wide, active, noise, summed, *norm = ctx.saved_tensors
        residual, *of_norm = _norm_backward(gradients[0], summed, *norm)
        out = residual.to(noise.dtype) * noise
        of_wide = _aten.gelu_backward(out @ down, wide)
        of_hidden = residual.add_(of_wide @ up).view_as(gradients[0])
        return (
            of_hidden, None, None, None,
            *_linear_backward(of_wide, narrow), *_linear_backward(out, active), *of_norm,
        )  # fmt: skip


def _linear_backward(gradient: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of a linear layer's weight and bias, in fp32."""
    return (gradient.t() @ values).float(), gradient.sum(0, dtype=torch.float32)


def _norm_backward(
    gradient: torch.Tensor, values: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor,
    weight: torch.Tensor, bias: torch.Tensor,
) -> list[torch.Tensor]:  # fmt: skip
    """Return the gradients of the input, the weight and the bias of layer normalization."""
    features = values.shape[-1:]
    needed = [True, True, True]
    return list(
        _aten.native_layer_norm_backward(
            gradient.reshape(values.shape), values, features, mean, deviation, weight, bias, needed
        )
    )
