"""The layers of BERT and MPNet for training on a CPU: matrix products, and kernels for all between them.

A layer is one autograd node. Its matrix products are in bf16 under autocast. Values between layers are fp32, and the
kernels compute in fp32. Attention weights and dropout are not kept: the backward pass computes and draws them again.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from transformers.activations import GELUActivation
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.mpnet.modeling_mpnet import MPNetLayer

from tasks.encoder.adapters import has_adapters
from tasks.encoder.batching import Packing
from tasks.kernels.library import call, computes

_FUSED = "fused"  # the attribute of a layer that uses the fused passes
_COPY = "weight_in_bf16"  # the attribute of a linear layer that holds a copy of its weight
Gradients = tuple[torch.Tensor | None, ...]


class Parts(NamedTuple):
    """The modules of a layer."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    dropout: nn.Dropout  # of the attention weights
    output: nn.Linear
    output_dropout: nn.Dropout
    norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    down_dropout: nn.Dropout
    last_norm: nn.LayerNorm
    heads: int


class Settings(NamedTuple):
    """What a layer computes with besides tensors: dropout's rates and seeds come in the order of their use."""

    heads: int
    epsilons: tuple[float, float]
    rates: Sequence[float]
    seeds: Sequence[int]
    weights: Sequence[torch.Tensor]  # in the type of the products: query, key and value as one, output, up, down


def bert_parts(layer: Any) -> Parts:
    """Return the modules of a BertLayer."""
    own, out = layer.attention.self, layer.attention.output
    return Parts(
        own.query, own.key, own.value, own.dropout, out.dense, out.dropout, out.LayerNorm,
        layer.intermediate.dense, layer.output.dense, layer.output.dropout, layer.output.LayerNorm,
        own.num_attention_heads,
    )  # fmt: skip


def mpnet_parts(layer: Any) -> Parts:
    """Return the modules of an MPNetLayer."""
    own, out = layer.attention.attn, layer.attention
    return Parts(
        own.q, own.k, own.v, own.dropout, own.o, out.dropout, out.LayerNorm,
        layer.intermediate.dense, layer.output.dense, layer.output.dropout, layer.output.LayerNorm,
        own.num_attention_heads,
    )  # fmt: skip


def fuse_layers(encoder: nn.Module) -> bool:
    """Make layers use the kernels when they train on a CPU. Return whether there is any such layer.

    Layers of other families than BERT and MPNet, with adapters, or with another activation than GELU are left as is,
    and so are all layers where the kernels were not compiled.
    """
    layers: list[Any] = [each for each in encoder.modules() if type(each) in _FORWARDS and not has_adapters(each)]
    layers = [layer for layer in layers if isinstance(layer.intermediate.intermediate_act_fn, GELUActivation)]
    layers = [layer for layer in layers if computes(*layer.parameters()) and not getattr(layer, "is_decoder", False)]
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
    if not (sdpa and _trains_on_cpu(layer, hidden)):
        return BertLayer.forward(layer, hidden, mask, *others, **more)
    return Layer.of(bert_parts(layer), hidden, None if mask is None else mask[:, 0, 0], None, _products())


def _mpnet_forward(
    layer: Any,
    hidden: torch.Tensor,
    mask: torch.Tensor | Packing | None = None,
    position_bias: torch.Tensor | None = None,
    output_attentions: bool = False,
    **more: Any,
) -> tuple[torch.Tensor, ...]:
    if isinstance(mask, Packing) or output_attentions or not _trains_on_cpu(layer, hidden):
        usual: Any = MPNetLayer.forward
        return cast(tuple[torch.Tensor, ...], usual(layer, hidden, mask, position_bias, output_attentions, **more))
    present = None if mask is None else mask[:, 0, 0] == 0
    return (Layer.of(mpnet_parts(layer), hidden, present, position_bias, _products()),)


def _trains_on_cpu(layer: nn.Module, hidden: torch.Tensor) -> bool:
    return layer.training and hidden.device.type == "cpu" and _products() in (torch.bfloat16, torch.float32)


def _products() -> torch.dtype:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32


_FORWARDS: dict[type[nn.Module], Any] = {BertLayer: _bert_forward, MPNetLayer: _mpnet_forward}


class Layer(torch.autograd.Function):
    """A layer of an encoder, with hidden states before and after it of fp32 [batch, tokens, features]."""

    @staticmethod
    def of(
        parts: Parts, hidden: torch.Tensor, present: torch.Tensor | None, bias: torch.Tensor | None, dtype: torch.dtype
    ) -> torch.Tensor:
        """Compute the output of a layer, whose matrix products have the given type, from its input.

        A token attends to those that are present, bool [batch, tokens]; None: to all. The bias is added to the scores,
        [batch or 1, heads, tokens, tokens].
        """
        projections, norms = (parts.query, parts.key, parts.value), (parts.norm, parts.last_norm)
        dropouts = (parts.dropout, parts.output_dropout, parts.down_dropout)
        weights = [_joined([_narrow(one, dtype) for one in projections])]
        weights += [_narrow(one, dtype) for one in (parts.output, parts.up, parts.down)]
        settings = Settings(
            parts.heads,
            (parts.norm.eps, parts.last_norm.eps),
            [one.p for one in dropouts],
            torch.randint(2**62, (3,)).tolist(),
            weights,
        )
        linears = (*projections, parts.output, parts.up, parts.down)
        result: torch.Tensor = Layer.apply(  # type: ignore[no-untyped-call]
            hidden, bias, present, settings,
            *(one.weight for one in linears), *(one.bias for one in linears),
            *(one.weight for one in norms), *(one.bias for one in norms),
        )  # fmt: skip
        return result

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, bias: torch.Tensor | None, present: torch.Tensor | None, settings: Settings,
        *parameters: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Compute the output and keep what the backward pass needs."""
        *_, query_bias, key_bias, value_bias, out_bias, up_bias, down_bias, norm, last_norm, shift, last_shift = (
            one.detach() for one in parameters
        )
        projection, out, up, down = settings.weights
        ctx.settings, ctx.shape, dtype = settings, hidden.shape, projection.dtype
        batch, tokens, features = hidden.shape
        count, heads = batch * tokens, settings.heads
        hidden = hidden.detach().reshape(count, features).contiguous()
        if bias is not None:
            bias = bias.detach().contiguous()
        present = None if present is None else present.contiguous()
        narrow, biases = hidden.to(dtype), torch.cat([query_bias, key_bias, value_bias])
        projected = narrow @ projection.t()
        context = torch.empty_like(narrow)
        call(
            "attention", dtype, batch, tokens, heads, features // heads, projected, biases, present, bias,
            _row_stride(bias), settings.seeds[0], settings.rates[0], context,
        )  # fmt: skip
        middle, attended, *first = _add_and_norm(settings, 0, context @ out.t(), out_bias, hidden, norm, shift)
        slope = attended @ up.t()
        active = torch.empty_like(slope)
        call("gelu", dtype, count, slope.shape[1], up_bias, slope, active)
        result, _, *last = _add_and_norm(settings, 1, active @ down.t(), down_bias, middle, last_norm, last_shift)
        ctx.save_for_backward(
            narrow, projected, biases, present, bias, context, *first, norm, attended, slope, active, *last, last_norm
        )
        return result.view(ctx.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Gradients:
        """Return the gradients of the arguments of forward, in the same order."""
        (
            narrow, projected, biases, present, bias, context, normalized, inverse, norm, attended, slope, active,
            last_normalized, last_inverse, last_norm,
        ) = ctx.saved_tensors  # fmt: skip
        settings, (batch, tokens, features) = ctx.settings, ctx.shape
        projection, out, up, down = settings.weights
        count, heads, dtype = batch * tokens, settings.heads, projection.dtype
        gradient = gradients[0].reshape(count, features).contiguous()  # that of a sum may have strides of 0
        residual, of_down, of_last = _add_and_norm_backward(
            settings, 1, gradient, None, last_normalized, last_inverse, last_norm
        )
        of_active, of_up_bias = of_down @ down, gradient.new_empty(len(up))
        of_down_weight = of_down.t() @ active
        call("gelu_backward", dtype, count, len(up), slope, of_active, of_up_bias)
        of_up_weight = of_active.t() @ attended
        residual, of_out, of_first = _add_and_norm_backward(
            settings, 0, residual, of_active @ up, normalized, inverse, norm
        )
        of_out_weight, of_projected = of_out.t() @ context, torch.empty_like(projected)
        of_scores = None
        if ctx.needs_input_grad[1]:
            of_scores = gradient.new_empty(batch, heads, tokens, tokens)
        call(
            "attention_backward", dtype, batch, tokens, heads, features // heads, projected, biases, present, bias,
            _row_stride(bias), settings.seeds[0], settings.rates[0], of_out @ out, of_projected, of_scores,
        )  # fmt: skip
        of_weights, of_biases = of_projected.t() @ narrow, torch.empty_like(biases)
        call("sum_tokens", dtype, count, 3 * features, of_projected, of_biases)
        call("add", dtype, count * features, residual, of_projected @ projection)
        if of_scores is not None and len(bias) == 1:
            of_scores = of_scores.sum(0, keepdim=True)
        return (
            residual.view(ctx.shape), of_scores, None, None,
            *of_weights.chunk(3), of_out_weight, of_up_weight, of_down_weight,
            *of_biases.chunk(3), of_first[0], of_up_bias, of_last[0], of_first[1], of_last[1], of_first[2], of_last[2],
        )  # fmt: skip


def _row_stride(bias: torch.Tensor | None) -> int:
    """Return the numbers between the biases of two rows of a batch: 0 if all rows have the same one."""
    return 0 if bias is None or len(bias) == 1 else bias[0].numel()


def _narrow(linear: nn.Linear, dtype: torch.dtype) -> torch.Tensor:
    """Return a weight in the type of the products: its copy, or one without gradient that is made here."""
    copy: torch.Tensor | None = getattr(linear, _COPY, None)
    return linear.weight.detach().to(dtype) if copy is None or copy.dtype != dtype else copy


def _joined(weights: list[torch.Tensor]) -> torch.Tensor:
    """Return weights [features, features] one below the other: where they are, if they lie like this in memory."""
    first, size = weights[0], weights[0].nbytes
    memory = first.untyped_storage().data_ptr()
    if all(
        one.untyped_storage().data_ptr() == memory and one.data_ptr() == first.data_ptr() + at * size
        for at, one in enumerate(weights)
    ):
        return first.as_strided((len(weights) * len(first), first.shape[1]), first.stride())
    return torch.cat(weights)


def _add_and_norm(
    settings: Settings, half: int, product: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor,
    weight: torch.Tensor, shift: torch.Tensor,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Return the end of a half of a layer in fp32 and in the products' type, and what its backward pass needs."""
    normalized, output = torch.empty_like(residual), torch.empty_like(residual)
    inverse, copy = residual.new_empty(len(residual)), torch.empty_like(product)
    call(
        "add_and_norm", product.dtype, *residual.shape, product, bias, residual, weight, shift, settings.epsilons[half],
        settings.seeds[1 + half], settings.rates[1 + half], normalized, inverse, output, copy,
    )  # fmt: skip
    return output, copy, normalized, inverse


def _add_and_norm_backward(
    settings: Settings, half: int, gradient: torch.Tensor, more: torch.Tensor | None, normalized: torch.Tensor,
    inverse: torch.Tensor, weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the gradients of the residual, of the product, and of bias, weight and shift [3, features].

    The gradient of the output is the sum of `gradient` and `more`.
    """
    residual, of_parameters = torch.empty_like(normalized), normalized.new_empty(3, normalized.shape[1])
    of_product = torch.empty_like(normalized, dtype=settings.weights[0].dtype)
    call(
        "add_and_norm_backward", of_product.dtype, *normalized.shape, gradient, more, normalized, inverse, weight,
        settings.seeds[1 + half], settings.rates[1 + half], residual, of_product, of_parameters,
    )  # fmt: skip
    return residual, of_product, of_parameters
