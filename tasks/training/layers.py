"""The layers of an encoder of any architecture: their levels, freezing, recomputing, and compiling."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from include.stages import BadInput
from tasks.context import cache_folder

#: Families whose layers fill a cache, by their numbers.
FILL_A_CACHE = ("flaubert", "xlm")
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_REMEDY = "install it, as `make setup` does, or write training.compiled_layers: false, as in containers"


def layers_of(encoder: nn.Module) -> list[tuple[nn.Module, ...]]:
    """Return the modules of each layer, from the lowest layer to the top one.

    They are the items of the largest module list; lists of the same length hold further parts of the same layers (XLM).
    """
    lists = {name: module for name, module in encoder.named_modules() if isinstance(module, nn.ModuleList)}
    outer = [modules for name, modules in lists.items() if not any(name.startswith(f"{other}.") for other in lists)]
    largest = max(outer, key=lambda modules: sum(parameter.numel() for parameter in modules.parameters()))
    stacks = [modules for modules in outer if len(modules) == len(largest)]
    return list(zip(*stacks, strict=True))


def levels(encoder: nn.Module) -> dict[str, int]:
    """Return the level of every parameter by name: 0 for embeddings, 1 for the lowest layer; the pooler has none."""
    # Modules after the layers, such as a last norm, are part of the top layer; the pooler is part of the head.
    layers = [[p for part in layer for p in part.parameters()] for layer in layers_of(encoder)]
    number = {parameter: at for at, layer in enumerate(layers, 1) for parameter in layer}
    tables = {module.weight for module in encoder.modules() if isinstance(module, nn.Embedding)}
    found, outside = {}, 0
    for name, parameter in encoder.named_parameters():
        if parameter in number:
            outside = len(layers)
        if not name.startswith("pooler."):
            found[name] = number.get(parameter, 0 if parameter in tables else outside)
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
    """Store only the inputs of layers, and recompute activations (Chen et al. 2016). May raise BadInput."""
    kind = encoder.config.model_type
    if kind in FILL_A_CACHE:
        raise BadInput(
            f"the layers of the encoder ({kind}) fill a cache and cannot run twice: "
            "write training.activation_checkpointing: false"
        )
    for layer in layers_of(encoder):
        for part in layer:
            part.forward = partial(checkpoint, part.forward, use_reentrant=False)


def compile_layers(encoder: PreTrainedModel, backend: str = "inductor") -> None:
    """Let torch compile what each layer does in training, when the layer is first called; evaluations are too rare.

    A few compilations serve all layers and shapes, and later trainings. Replace layers before this call, and wrap them
    after it. Raises BadInput without a compiler or a cache folder, or if layers cannot share code.
    """
    kind = encoder.config.model_type
    if kind in FILL_A_CACHE:
        raise BadInput(
            f"the layers of the encoder ({kind}) fill a cache, so that each would need code of its own: "
            "write training.compiled_layers: false"
        )
    if tool := missing_tool():
        raise BadInput(f"training.compiled_layers needs {tool}: {_REMEDY}")
    _keep_code(cache_folder() / "compiled")
    for layer in layers_of(encoder):
        for part in layer:
            part.forward = _in_training(part, part.forward, backend)


def missing_tool() -> str:
    """Return what the compiler lacks, or an empty text. On a GPU, its code is also started from C."""
    compiler, headers = os.environ.get("CXX", "g++"), Path(sysconfig.get_path("include"), "Python.h")
    if shutil.which(compiler) is None:
        return f"a C++ compiler, but there is no program {compiler!r} ($CXX, else g++)"
    return "" if headers.is_file() else f"Python's headers, but there is no {headers}"


def _keep_code(folder: Path) -> None:
    """Keep code in a folder, unless the user has named one. By itself, torch takes one that may be emptied."""
    if os.environ.get(_CACHE) in (None, default_cache_dir()):  # torch itself sets the variable when it is imported
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"training.compiled_layers keeps code in {folder}, which cannot be made ({error.strerror}): name "
                f"another folder in SPARK_BERT_CACHE or {_CACHE}"
            ) from error
        os.environ[_CACHE] = str(folder)


def _in_training(part: nn.Module, plain: Callable[..., Any], backend: str) -> Callable[..., Any]:
    compiled = torch.compile(plain, dynamic=True, backend=backend)

    def forward(*values: Any, **named: Any) -> Any:
        return (compiled if part.training else plain)(*values, **named)

    return forward
