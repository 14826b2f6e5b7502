"""What the model card says of the pretrained encoder: its name on the Hugging Face hub, and its license."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from include.sections import Runtime
from include.stages import BadInput
from tasks.assets import ENCODERS, encoder_folder, is_folder


@dataclass(frozen=True)
class BaseModel:
    """A pretrained encoder.

    Attributes:
        name: Its name in the experiment, or that of its folder.
        hub: Its name on the hub; "" if it is not there.
        license: The hub's name of its license; "" if it is unknown.
    """

    name: str
    hub: str
    license: str


def base_model(name: str, runtime: Runtime) -> BaseModel:
    """Return what is known of an encoder.

    The license of an encoder that is not bundled is that in the header of its own model card, README.md in its folder.

    Args:
        name: `model.name` of the experiment.
        runtime: Says whether missing files may be downloaded.
    """
    if name in ENCODERS:
        return BaseModel(name, f"sentence-transformers/{name}", "apache-2.0")
    try:
        license = _license(encoder_folder(name, runtime) / "README.md")
    except BadInput:  # The model was trained elsewhere or long ago, and its encoder is no longer here.
        license = ""
    return BaseModel(Path(name).name, "", license) if is_folder(name) else BaseModel(name, name, license)


def _license(card: Path) -> str:
    """Return the license in the YAML header of a model card; "" if there is none."""
    try:
        start, header, *_ = card.read_text(encoding="utf-8").split("---\n", 2)
        values: Any = yaml.safe_load(header)
        return "" if start.strip() else str(values.get("license", ""))
    except (OSError, ValueError, AttributeError, yaml.YAMLError):
        return ""
