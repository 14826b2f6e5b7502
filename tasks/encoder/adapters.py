"""LoRA (Hu et al. 2021): adapters of low rank, which are trained in place of an encoder's linear layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import PreTrainedModel

from include.fields.training import Training
from include.stages import BadInput

ADAPTER = "adapter"  # the folder for the adapters in a model's folder
_NAME = "default"  # peft's name for the only adapter of a layer
_BASE = ".base_layer."  # where peft keeps the layer itself
#: Families call the modules of attention attention, attn, self_attn, rel_attn and so on.
_ATTENTION = re.compile(r"[._]att")


def add_adapters(encoder: PreTrainedModel, layers: Sequence[Sequence[nn.Module]], training: Training) -> None:
    """Add adapters to linear layers of an encoder, and freeze all its other parameters but those of the pooler."""
    inside = {part for layer in layers for module in layer for part in module.modules() if isinstance(part, nn.Linear)}
    names = [name for name, part in encoder.named_modules() if part in inside]
    if training.lora_targets != "all":
        names = [name for name in names if _ATTENTION.search(name)]
    if not names:
        raise BadInput(
            f"the encoder ({encoder.config.model_type}) has no linear layers that training.lora_targets: "
            f"{training.lora_targets} means: write training.lora_rank: 0"
            + (", or training.lora_targets: all" if inside else "")
        )
    from peft import LoraConfig, inject_adapter_in_model  # It takes seconds to load, and only LoRA needs it.

    inject_adapter_in_model(
        LoraConfig(r=training.lora_rank, lora_alpha=training.lora_alpha, target_modules=names), encoder
    )
    pooler = getattr(encoder, "pooler", None)
    if pooler is not None:  # It is a part of the head.
        pooler.requires_grad_(True)


def has_adapters(module: nn.Module) -> bool:
    """Return whether any layer of a module has an adapter."""
    return any(_BASE in f".{name}" for name, _ in module.named_parameters())


def merged(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights of a model with those of its adapters added, under their names in a model without adapters."""
    weights = {}
    for name, values in model.state_dict().items():
        layer, found, _ = name.partition(f"{_BASE}weight")
        if found:
            adapted: Any = model.get_submodule(layer)
            values = values + adapted.get_delta_weight(_NAME).detach()
        if ".lora_" not in name:
            weights[name.replace(_BASE, ".")] = values
    return weights


def save_adapters(encoder: PreTrainedModel, folder: Path) -> None:
    """Write the adapters of an encoder in the format of peft's PeftModel, if it has any."""
    if not has_adapters(encoder):
        return
    from peft import get_peft_model_state_dict

    folder.mkdir(parents=True, exist_ok=True)
    config: Any = encoder.peft_config
    config[_NAME].save_pretrained(folder)
    weights = {f"base_model.model.{name}": values for name, values in get_peft_model_state_dict(encoder).items()}
    save_file(weights, folder / "adapter_model.safetensors")
