"""Versions of a model in a real registry, whose alias moves."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

from include.artifacts import MANIFEST, Artifact, ArtifactStore, sha256, write_json
from tasks.tracking.champions import Champions
from tasks.tracking.loading import PACKAGE, PACKAGE_SHA256
from tasks.tracking.registry import Version
from tasks.tracking.server import Server
from tests.tasks.serving.conftest import Client

MODEL = "spark-bert-movie-reviews"


def add(home: Path, made: Artifact, key: str, changed: dict[str, object] | None = None) -> Version:
    """Register a copy of a package, whose examples may be others."""
    store, registry = ArtifactStore(home), Champions(Server(home), MODEL)
    with store.writing("package", key) as folder:
        shutil.copytree(made.path, folder, dirs_exist_ok=True)
        (folder / MANIFEST).unlink()
        if changed is not None:
            write_json(folder / "examples.json", changed)
        package = store.commit(folder, replace(made.manifest, key=key))
    experiment = registry.client.create_experiment(f"of {key}", str(home / "mlflow/artifacts"))
    tags = {PACKAGE: key, PACKAGE_SHA256: sha256(package.path / MANIFEST)}
    return registry.add(registry.client.create_run(experiment).info.run_id, package.path, tags)


def promote(home: Path, version: Version) -> None:
    """Make a version the champion."""
    Champions(Server(home), MODEL).make_champion(version)


def await_version(client: Client, number: str) -> None:
    """Wait until a version answers."""
    for _ in range(600):
        if client.send(f"/v2/models/{MODEL}/versions/{number}/ready").status == 200:
            return
        time.sleep(0.05)
    raise AssertionError(f"version {number} does not answer")
