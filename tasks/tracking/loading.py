"""Loading by alias: from a version in the registry to files of which every one is as it was registered."""

from __future__ import annotations

import json

from include.artifacts import MANIFEST, Artifact, ArtifactStore, Manifest, damaged, sha256
from include.stages import BadInput
from tasks.tracking.registry import Registry, Version

#: The tags that say which training and evaluation a version is, and that its files are those.
TRAIN, EVALUATE, SEAL = "train.key", "evaluate.key", "manifest.sha256"
REMEDY = (
    "restore it from a copy, or let `make rollback` make the champion before it the champion again; where there is "
    "none, delete the alias champion in MLflow"
)


def load_champion(registry: Registry, store: ArtifactStore) -> tuple[Version, Artifact] | None:
    """The champion and its training; None as long as there is none. Raises what load raises."""
    version = registry.champion()
    return None if version is None else (version, load(version, store))


def load(version: Version, store: ArtifactStore) -> Artifact:
    """The training that the version was made from, whose folder model/ is the model.

    Raises BadInput, naming the file and the remedy, when one of its files is gone or not as it was registered.
    """
    if not version.tags.get(TRAIN):
        raise BadInput(
            f"{version} has no tag {TRAIN}, so no run of retrain has entered it: give the alias to one that has it"
        )
    folder = store.path("train", version.tags[TRAIN])
    file = folder / MANIFEST
    if not file.is_file() or sha256(file) != version.tags.get(SEAL):
        raise BadInput(f"{file} of {version} is missing, or is not what was registered: {REMEDY}")
    artifact = Artifact(folder, Manifest(**json.loads(file.read_text(encoding="utf-8"))))
    wrong = damaged(folder, artifact.manifest.files)
    if wrong is not None:
        raise BadInput(f"{wrong} of {version} is missing or damaged: {REMEDY}")
    return artifact
