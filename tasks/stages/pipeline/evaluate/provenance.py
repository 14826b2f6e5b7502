"""The provenance of a model for the report, taken from the run and its input artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from include.artifacts import Artifact
from include.glue import GENERIC, SPLITS
from include.sections import Data
from tasks.context import Context


@dataclass(frozen=True)
class Provenance:
    """Where the model comes from.

    Attributes:
        data: A readable name of the data.
        run: The name of the run that created the report. Runs that reuse the artifact also reuse the report.
        facts: Title to settings, which the report shows at its end.
    """

    data: str
    run: str
    facts: Mapping[str, Mapping[str, Any]]


def provenance_of(context: Context) -> Provenance:
    """Return the provenance of the model that the run evaluates."""
    return Provenance(_name(context.experiment.data), context.run.folder.name, _facts(context.inputs))


def _name(data: Data) -> str:
    """Return a readable name of the data: that of a registered task, or that of the folder of the user's files."""
    return f"{Path(data.path).name or data.path} ({data.task})" if data.task in GENERIC else data.task


def _facts(inputs: Mapping[str, Artifact]) -> dict[str, dict[str, Any]]:
    train = inputs["train"].manifest
    settings = {
        "encoder": train.part["model"]["name"],
        "pooling": train.part["model"]["pooling"],
        **{name.replace("_", " "): value for name, value in train.part["training"].items()},
        "gradient compression": train.part["communication"]["compression"],
    }
    keys = {f"{name} artifact": artifact.manifest.key for name, artifact in inputs.items()}
    rows = inputs["preprocess"].manifest.result.get("rows", {})
    source = inputs["validate"].manifest.part["data"]
    data = {"source": source["source"], "folder": source["path"]}
    if source["source"] == "files":
        data["files"] = ", ".join(source[split] for split in SPLITS)
    data |= {f"{split} rows": count for split, count in rows.items()}
    return {"Training": settings, "Data and provenance": {**data, **keys, "code revision": train.revision}}
