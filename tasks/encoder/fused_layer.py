"""The layers of BERT and MPNet for training on a CPU in bf16, with hand-written forward and backward passes.

Each half of a layer is a single autograd node, every value is cast once, and dropout is cheap. Between the halves and
in layer normalization values stay in fp32, as they do under autocast.
"""

from __future__ import annotations

import math
import types
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.nn import functional
from transformers.activations import GELUActivation
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.mpnet.modeling_mpnet import MPNetLayer

from tasks.encoder.adapters import has_adapters
from tasks.encoder.batching import Packing
from tasks.encoder.dropout import Noise

_aten = torch.ops.aten
_FUSED = "fused"  # the attribute of a layer that uses the fused passes
_COPY = "weight_in_bf16"  # the attribute of a linear layer that holds a copy of its weight
_VECTOR = 32  # 16-bit numbers in a register of AVX-512, which holds half as many of fp32
Gradients = tuple[torch.Tensor | None, ...]


class SelfAttention(NamedTuple):
    """The modules of a layer's first half; `dropout` is that of the attention weights."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    dropout: nn.Dropout
    output: nn.Linear
    output_dropout: nn.Dropout
    norm: nn.LayerNorm
    heads: int


def bert_attention(layer: Any) -> SelfAttention:
    """Return the modules of a BertLayer's first half."""
    own, out = layer.attention.self, layer.attention.output
    return SelfAttention(
        own.query, own.key, own.value, own.dropout, out.dense, out.dropout, out.LayerNorm, own.num_attention_heads
    )  # fmt: skip


def mpnet_attention(layer: Any) -> SelfAttention:
    """Return the modules of an MPNetLayer's first half."""
    own, out = layer.attention.attn, layer.attention
    return SelfAttention(own.q, own.k, own.v, own.dropout, own.o, out.dropout, out.LayerNorm, own.num_attention_heads)


def fuse_layers(encoder: nn.Module) -> bool:
    """Make layers use the fused passes when they train on a CPU under bf16 autocast. Return whether there is any.

    Layers of other families than BERT and MPNet, with adapters, or with another activation than GELU are left as is.
    """
    layers: list[Any] = [each for each in encoder.modules() if type(each) in _FORWARDS and not has_adapters(each)]
    layers = [layer for layer in layers if isinstance(layer.intermediate.intermediate_act_fn, GELUActivation)]
    for layer in layers:
        layer.forward = types.MethodType(_FORWARDS[type(layer)], layer)
        setattr(layer, _FUSED, True)
    return bool(layers)


def fused_linears(model: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear layers of all fused layers, by the names of their weights in the model."""
    fused = [(name, layer) for name, layer in model.named_modules() if hasattr(layer, _FUSED)]
    return {
        f"{outer}.{inner}.weight": linear
        for outer, layer in fused
        for inner, linear in layer.named_modules()
        if isinstance(linear, nn.Linear)
    }


def multiply_with(copy: torch.Tensor, linear: nn.Linear) -> None:
    """Let the fused passes multiply with a copy of a weight in bf16, instead of rounding the weight in every pass."""
    setattr(linear, _COPY, copy)


def leave_gradients_narrow(linear: nn.Linear) -> None:
    """Let the fused passes leave gradients in bf16: only for steps with a single backward pass, which adds nothing."""
    for parameter in linear.parameters():
        parameter.grad_dtype = None


def _bert_forward(
    layer: Any, hidden: torch.Tensor, mask: torch.Tensor | None = None, *others: Any, **more: Any
) -> torch.Tensor:
    sdpa = layer.attention.self.config._attn_implementation == "sdpa"  # Only this implementation has a boolean mask.
    if not (sdpa and _trains_in_bf16_on_cpu(layer, hidden)):
        return BertLayer.forward(layer, hidden, mask, *others, **more)
    hidden = Attention.of(bert_attention(layer), hidden, mask, None, torch.bfloat16)
    return FeedForward.of(layer, hidden, torch.bfloat16)


def _mpnet_forward(
    layer: Any,
    hidden: torch.Tensor,
    mask: torch.Tensor | Packing | None = None,
    position_bias: torch.Tensor | None = None,
    output_attentions: bool = False,
    **more: Any,
) -> tuple[torch.Tensor, ...]:
    if isinstance(mask, Packing) or output_attentions or not _trains_in_bf16_on_cpu(layer, hidden):
        usual: Any = MPNetLayer.forward
        return cast(tuple[torch.Tensor, ...], usual(layer, hidden, mask, position_bias, output_attentions, **more))
    bias = position_bias if mask is None or position_bias is None else position_bias + mask
    hidden = Attention.of(mpnet_attention(layer), hidden, None, bias, torch.bfloat16)
    return (FeedForward.of(layer, hidden, torch.bfloat16),)


def _trains_in_bf16_on_cpu(layer: nn.Module, hidden: torch.Tensor) -> bool:
    bf16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return layer.training and bf16 and hidden.device.type == "cpu"


_FORWARDS: dict[type[nn.Module], Any] = {BertLayer: _bert_forward, MPNetLayer: _mpnet_forward}


class Attention(torch.autograd.Function):
    """The first half of a layer: self-attention, dropout, the residual connection and layer normalization."""

    @staticmethod
    def of(
        modules: SelfAttention,
        hidden: torch.Tensor,
        mask: torch.Tensor | None,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        """Compute the output of a layer's first half from hidden states, both [batch, tokens, features].

        The mask is True where a token may attend to another one, [batch, 1, 1 or tokens, tokens]. The bias is added to
        the attention scores, [batch or 1, heads, tokens, tokens]. Matrix products have the given type.
        """
        rates, projections = (modules.dropout.p, modules.output_dropout.p), (modules.query, modules.key, modules.value)
        output, norm = modules.output, modules.norm
        result: torch.Tensor = Attention.apply(  # type: ignore[no-untyped-call]
            hidden, bias, mask, _narrow([*projections, output], dtype), modules.heads, rates, norm.eps,
            *(m.weight for m in projections), *(m.bias for m in projections),
            output.weight, output.bias, norm.weight, norm.bias,
        )  # fmt: skip
        return result

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, bias: torch.Tensor | None, mask: torch.Tensor | None,
        narrow_weights: Sequence[torch.Tensor], heads: int, rates: tuple[float, float], epsilon: float,
        *parameters: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Compute the output and keep what the backward pass needs."""
        _, _, _, *shifts, _, out_bias, norm_weight, norm_bias = parameters
        *projections, out_weight = narrow_weights
        dtype = out_weight.dtype
        batch, tokens, features = hidden.shape
        ctx.shape, ctx.dtype, ctx.scale = (batch, tokens, heads, features // heads), dtype, (features // heads) ** -0.5
        ctx.bias_shape = None if bias is None else bias.shape
        noise = Noise()
        hidden = hidden.reshape(-1, features)
        narrow = hidden.to(dtype)
        weight, shift = torch.cat(projections), torch.cat(shifts).to(dtype)
        projected = torch.addmm(shift, narrow, weight.t()).view(batch, tokens, 3, heads, -1)
        parts = projected.permute(2, 0, 3, 1, 4).reshape(3, batch * heads, tokens, -1)  # query, key, value
        scores = torch.bmm(parts[0], parts[1].transpose(1, 2)).mul_(ctx.scale)
        if bias is not None:
            scores.view(batch, heads, tokens, tokens).add_(bias.to(dtype))
        if mask is not None:
            scores.view(batch, heads, tokens, tokens).masked_fill_(~mask, -math.inf)
        probabilities = _softmax(scores)
        attention_noise = noise.draw(probabilities.shape, rates[0], dtype)
        context = torch.bmm(probabilities * attention_noise, parts[2])
        context = context.view(batch, heads, tokens, -1).transpose(1, 2).reshape(-1, features)
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
        of_scores = _softmax_backward(of_probabilities, probabilities)
        of_bias = None
        if ctx.needs_input_grad[1]:  # It is a copy, because the scores' gradient is overwritten.
            each = of_scores.view(batch, heads, tokens, tokens)
            of_bias = each.sum_to_size(ctx.bias_shape).to(torch.float32, copy=True)
        of_scores.mul_(ctx.scale)
        torch.bmm(of_scores, parts[1], out=of_parts[0])
        torch.bmm(of_scores.transpose(1, 2), parts[0], out=of_parts[1])
        projected = of_parts.view(3, batch, heads, tokens, size).permute(1, 3, 0, 2, 4).reshape(batch * tokens, -1)
        of_weights, of_biases = _linear_backward(projected, narrow)
        of_hidden = residual.add_(projected @ weight).view_as(gradients[0])
        return (
            of_hidden, of_bias, None, None, None, None, None, *of_weights.chunk(3), *of_biases.chunk(3),
            *_linear_backward(out, context), *of_norm,
        )  # fmt: skip


class FeedForward(torch.autograd.Function):
    """The second half of a layer: the feed-forward network, dropout, the residual connection and normalization."""

    @staticmethod
    def of(layer: Any, hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Compute the output of a layer from that of its first half, both [batch, tokens, features]."""
        up, out = layer.intermediate.dense, layer.output
        result: torch.Tensor = FeedForward.apply(  # type: ignore[no-untyped-call]
            hidden, _narrow([up, out.dense], dtype), out.dropout.p, out.LayerNorm.eps,
            up.weight, up.bias, out.dense.weight, out.dense.bias, out.LayerNorm.weight, out.LayerNorm.bias,
        )  # fmt: skip
        return result

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, narrow_weights: Sequence[torch.Tensor], rate: float, epsilon: float,
        *parameters: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Compute the output and keep what the backward pass needs."""
        _, up_bias, _, down_bias, norm_weight, norm_bias = parameters
        up, down = narrow_weights
        dtype = up.dtype
        shape, hidden = hidden.shape, hidden.reshape(-1, hidden.shape[-1])
        narrow = hidden.to(dtype)
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


def _narrow(linears: Sequence[nn.Linear], dtype: torch.dtype) -> list[torch.Tensor]:
    """Return copies of weights in the format of the products; weights without one are rounded here."""
    return [getattr(one, _COPY) if hasattr(one, _COPY) else one.weight.detach().to(dtype) for one in linears]


def _softmax(scores: torch.Tensor) -> torch.Tensor:
    """Return the softmax over the last dimension, in the format of the scores.

    If a row of 16-bit numbers is shorter than a register of the processor, torch computes one number after the other.
    In fp32, and padded to whole registers, such rows take a quarter to a half of the time.
    """
    tokens = scores.shape[-1]
    if scores.dtype.itemsize > 2 or tokens >= _VECTOR:
        return torch.softmax(scores, -1)
    whole = functional.pad(scores, (0, -tokens % (_VECTOR // 2)), value=-math.inf)
    return torch.softmax(whole, -1, dtype=torch.float32)[..., :tokens].to(scores.dtype)


def _softmax_backward(gradient: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the scores from that of the probabilities: for short rows as p (g - sum g p)."""
    if gradient.dtype.itemsize > 2 or gradient.shape[-1] >= _VECTOR:
        return cast(torch.Tensor, _aten._softmax_backward_data(gradient, probabilities, -1, gradient.dtype))
    weighted = gradient.float().mul_(probabilities)
    return weighted.sub_(probabilities * weighted.sum(-1, keepdim=True)).to(gradient.dtype)


def _linear_backward(gradient: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of weight and bias, which autograd widens to fp32 unless grad_dtype allows others."""
    return gradient.t() @ values, gradient.sum(0)  # to sum in fp32 would copy the whole gradient first


def _norm_backward(
    gradient: torch.Tensor, values: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor,
    weight: torch.Tensor, bias: torch.Tensor,
) -> list[torch.Tensor]:  # fmt: skip
    gradient, features = gradient.reshape(values.shape), values.shape[-1:]
    return list(_aten.native_layer_norm_backward(gradient, values, features, mean, deviation, weight, bias, [True] * 3))
