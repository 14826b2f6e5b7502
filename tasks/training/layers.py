"""The layers of an encoder of any architecture: their parameters, freezing, and recomputing their activations."""

from __future__ import annotations

from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from include.stages import BadInput

#: Families whose layers fill a cache, by their numbers.
FILL_A_CACHE = ("flaubert", "xlm")


def levels(encoder: nn.Module) -> dict[str, int]:
    """Return the level of every parameter by name: 0 for embeddings, 1 for the lowest layer, and so on.

    All embedding tables and the modules before the layers count as embeddings. Modules after the layers, such as a
    last norm, count as part of the top layer. (So does DeBERTa's norm of relative positions: two vectors.) The pooler
    of BERT and others has no level, because it is a part of the head.
    """
    layers = [[p for part in layer for p in part.parameters()] for layer in layers_of(encoder)]
    number = {parameter: at for at, layer in enumerate(layers, 1) for parameter in layer}
    tables = {module.weight for module in encoder.modules() if isinstance(module, nn.Embedding)}
    found, beside = {}, 0
    for name, parameter in encoder.named_parameters():
        if parameter in number:
            beside = len(layers)
        if not name.startswith("pooler."):
            found[name] = number.get(parameter, 0 if parameter in tables else beside)
    return found


def freeze(encoder: nn.Module, layers: int) -> None:
    """Freeze the lowest `layers` layers and, if there are any, the embeddings. Raises BadInput if there are fewer."""
    level = levels(encoder)
    top = max(level.values())
    if layers > top:
        raise BadInput(
            f"training.freeze_layers is {layers}, but the encoder has {top} with weights of their own: "
            f"write {top} or less"
        )
    for name, parameter in encoder.named_parameters():
        if layers and level.get(name, top + 1) <= layers:
            parameter.requires_grad_(False)


def recompute_activations(encoder: PreTrainedModel) -> None:
    """Store only the input of each layer, and recompute its activations in the backward pass (Chen et al. 2016).

    Random state and autocast are restored for the second pass. The current `forward` of the layers is wrapped, so
    replace layers before this call.

    Raises:
        BadInput: the layers of the encoder cannot run twice.
    """
    kind = encoder.config.model_type
    if kind in FILL_A_CACHE:
        raise BadInput(
            f"the layers of the encoder ({kind}) fill a cache and cannot run twice: "
            "write training.activation_checkpointing: false"
        )
    for layer in layers_of(encoder):
        for part in layer:
            part.forward = partial(checkpoint, part.forward, use_reentrant=False)


def layers_of(encoder: nn.Module) -> list[tuple[nn.Module, ...]]:
    """Return the modules of each layer, from the lowest layer to the top one.

    The layers are the items of the module list with the most parameters. Other lists of the same length hold further
    parts of the same layers (as in XLM); lists inside a layer are ignored. ALBERT's layers share their weights, so
    it has one layer here.
    """
    lists = {name: module for name, module in encoder.named_modules() if isinstance(module, nn.ModuleList)}
    outer = [modules for name, modules in lists.items() if not any(name.startswith(f"{other}.") for other in lists)]
    largest = max(outer, key=lambda modules: sum(parameter.numel() for parameter in modules.parameters()))
    stacks = [modules for modules in outer if len(modules) == len(largest)]
    return list(zip(*stacks, strict=True))
