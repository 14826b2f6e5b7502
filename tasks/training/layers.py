"""The layers of an encoder, of whatever make: their parameters, freezing the lowest, recomputing their activations."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from include.stages import BadInput

_FILL_A_CACHE = ("flaubert", "xlm")


def levels(encoder: nn.Module) -> dict[str, int]:
    """The level of every parameter by name: 0 for embeddings, 1 for the lowest layer, and so on.

    Tables, wherever they are, and what precedes the layers count as embeddings. What follows the layers, as a last
    norm, is part of the top layer. (So is DeBERTa's norm of its relative positions: two vectors.)
    """
    layers = [[p for part in layer for p in part.parameters()] for layer in _layers(encoder)]
    number = {parameter: at for at, layer in enumerate(layers, 1) for parameter in layer}
    tables = {module.weight for module in encoder.modules() if isinstance(module, nn.Embedding)}
    found, beside = {}, 0
    for name, parameter in encoder.named_parameters():
        if parameter in number:
            beside = len(layers)
        found[name] = number.get(parameter, 0 if parameter in tables else beside)
    return found


def freeze(encoder: nn.Module, layers: int) -> None:
    """Train neither these lowest layers nor, with any, the embeddings. Raises BadInput when there are fewer."""
    level = levels(encoder)
    top = max(level.values())
    if layers > top:
        raise BadInput(
            f"training.freeze_layers is {layers}, but the encoder has {top} with weights of their own: "
            f"write {top} or less"
        )
    for name, parameter in encoder.named_parameters():
        if layers and level[name] <= layers:
            parameter.requires_grad_(False)


def recompute_activations(encoder: PreTrainedModel) -> None:
    """Keep of each layer its input only, and compute what is inside again for backward (Chen et al. 2016).

    Random states and autocast are those of the first time. Wraps what layers' forward is now: replace it before.
    Raises BadInput for an encoder whose layers cannot run twice.
    """
    kind = encoder.config.model_type
    if kind in _FILL_A_CACHE:
        raise BadInput(
            f"the encoder ({kind}) fills a cache as it goes, so that no layer can run again: "
            "write training.activation_checkpointing: false"
        )
    for layer in _layers(encoder):
        for part in layer:
            part.forward = partial(checkpoint, part.forward, use_reentrant=False)


def _layers(encoder: nn.Module) -> list[tuple[nn.Module, ...]]:
    """Each layer's modules, from the lowest layer to the top one.

    The layers are the items of the largest list of modules. Lists of the same length hold other parts of the same
    layers (XLM); a list inside a list is a layer's own business. ALBERT's layers share weights: it has but one.
    """
    lists = {name: module for name, module in encoder.named_modules() if isinstance(module, nn.ModuleList)}
    outer = [modules for name, modules in lists.items() if not any(name.startswith(f"{other}.") for other in lists)]
    largest = max(outer, key=lambda modules: sum(parameter.numel() for parameter in modules.parameters()))
    stacks = [modules for modules in outer if len(modules) == len(largest)]
    return list(zip(*stacks, strict=True))
