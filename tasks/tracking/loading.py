"""Load a registered version, such as the champion, and verify that its files are unchanged since registration."""

from __future__ import annotations

from pathlib import Path

from include.artifacts import MANIFEST, Artifact, ArtifactStore, damaged, read_manifest, sha256
from include.stages import BadInput
from tasks.tracking.registry import Registry, Version

#: The tags of a version with the keys of its artifacts, and with the digests of train's and package's manifests.
TRAIN, EVALUATE, PACKAGE = "train.key", "evaluate.key", "package.key"
MANIFEST_SHA256, PACKAGE_SHA256 = "manifest.sha256", "package.sha256"
REMEDY = (
    "restore it from a backup, or run `make rollback` to return to the previous champion; if there is no previous "
    "champion, delete the alias champion in MLflow"
)


def load_champion(registry: Registry, store: ArtifactStore) -> tuple[Version, Artifact] | None:
    """Return the champion and its train artifact, or None if there is no champion yet."""
    version = registry.champion()
    return None if version is None else (version, load(version, store))


def load_package(version: Version, store: ArtifactStore) -> Artifact | None:
    """Return the package artifact of a version, or None if it is gone."""
    package = store.find("package", version.tags.get(PACKAGE, "none"))
    if package is None:
        return None
    remedy = f"if the model was packaged again, register and promote it again; otherwise {REMEDY}"
    return _as_registered(package.path, version, PACKAGE_SHA256, remedy)


def load(version: Version, store: ArtifactStore) -> Artifact:
    """Return the train artifact of a version. Its folder model/ contains the model."""
    if not version.tags.get(TRAIN):
        raise BadInput(
            f"{version} has no tag {TRAIN}, so no run of retrain has registered it: move the alias to one that has it"
        )
    return _as_registered(store.path("train", version.tags[TRAIN]), version, MANIFEST_SHA256)


def _as_registered(folder: Path, version: Version, tag: str, remedy: str = REMEDY) -> Artifact:
    """Return the artifact in a folder, whose manifest the tag has the digest of, and whose files are the manifest's."""
    file = folder / MANIFEST
    if not file.is_file() or sha256(file) != version.tags.get(tag):
        raise BadInput(f"{file} of {version} is missing or differs from what was registered: {remedy}")
    artifact = Artifact(folder, read_manifest(folder))
    wrong = damaged(folder, artifact.manifest.files)
    if wrong is not None:
        raise BadInput(f"{wrong} of {version} is missing or damaged: {REMEDY}")
    return artifact
