"""The pretrained encoder that a model descends from: its name on the Hugging Face hub, and its license."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from include.fields.ranks import Runtime
from include.stages import BadInput
from tasks.assets import ENCODERS, encoder_folder, is_path
from tasks.encoder.spec import BASE_MODEL


@dataclass(frozen=True)
class BaseModel:
    """A pretrained encoder, whose names on the hub are "" if they are unknown."""

    name: str  # in the experiment, or that of its folder
    hub: str
    license: str
    continued: bool = False  # whether the training started from a model that had been fine-tuned before


def base_model(name: str, runtime: Runtime) -> BaseModel:
    """Return what is known of the encoder that a training starts from, or of the encoder of such a trained model."""
    if name in ENCODERS:
        return BaseModel(name, f"sentence-transformers/{name}", "apache-2.0")
    try:
        folder = encoder_folder(name, runtime)
    except BadInput:  # The model was trained elsewhere or long ago, and its encoder is no longer here.
        return _named(name, "")
    earlier = recorded(folder)
    return replace(earlier, continued=True) if earlier else _named(name, _license(folder / "README.md"))


def recorded(model: Path) -> BaseModel | None:
    """Return what the folder of a trained model says of its encoder; None if it says nothing."""
    try:
        values = json.loads((model / "config.json").read_text(encoding="utf-8"))[BASE_MODEL]
        name, hub, license = (str(values[part]) for part in ("name", "hub", "license"))
        return BaseModel(name, hub, license, values["continued"] is True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _named(name: str, license: str) -> BaseModel:
    return BaseModel(Path(name).name, "", license) if is_path(name) else BaseModel(name, name, license)


def _license(card: Path) -> str:
    try:
        start, header, *_ = card.read_text(encoding="utf-8").split("---\n", 2)
        values: Any = yaml.safe_load(header)
        return "" if start.strip() else str(values.get("license", ""))
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return ""
