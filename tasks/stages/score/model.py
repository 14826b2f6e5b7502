"""The model that scores: the folder that the experiment names, or the champion of the registry."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from include.artifacts import sha256
from include.experiment import Experiment
from include.paths import user_path
from include.runs import Run
from include.stages import BadInput
from tasks.tracking.loading import MANIFEST_SHA256, load_champion
from tasks.tracking.registry import Registry


@dataclass(frozen=True)
class Model:
    """A model.

    Attributes:
        version: What the predictions say of it: the name and the number of a champion, or a digest of the files.
        digest: A digest that changes with the files.
        folder: The folder with its files.
    """

    version: str
    digest: str
    folder: str


def chosen(experiment: Experiment, run: Run) -> Model:
    """Return the model, whose files are verified if it is the champion.

    Raises:
        BadInput: If there is no such model, or if a file of the champion was changed.
        Transient: If MLflow does not answer.
    """
    if experiment.scoring.model:
        return _of_folder(user_path(experiment.scoring.model).absolute())
    registry = Registry.of(experiment, run)
    found = load_champion(registry, run.store)
    if found is None:
        raise BadInput(
            f"{registry.model} has no champion: promote a model with the Dag retrain, name another dataset.name or "
            "data.task, or name the folder of a model as scoring.model"
        )
    version, artifact = found
    return Model(f"{version.model}/{version.number}", version.tags[MANIFEST_SHA256], str(artifact.path / "model"))


def _of_folder(folder: Path) -> Model:
    files = sorted(file for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else []
    if folder / "config.json" not in files:
        raise BadInput(f"{folder} is not the folder of a model, because it has no config.json: correct scoring.model")
    digests = [f"{file.relative_to(folder)} {sha256(file)}" for file in files]
    digest = hashlib.sha256("\n".join(digests).encode()).hexdigest()
    return Model(f"sha256:{digest[:16]}", digest, str(folder))
