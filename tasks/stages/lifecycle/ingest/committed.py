"""What follows once the artifact of the stage ingest is committed."""

from __future__ import annotations

from include.artifacts import Artifact
from include.datasets import Dataset
from include.runs import Run
from tasks.stages.lifecycle.ingest.plan import Plan, drop_folder
from tasks.stages.lifecycle.ingest.refuse import set_aside


def committed(artifact: Artifact, run: Run) -> None:
    """Make a new version the last version of the dataset, and move malformed files away.

    The runner calls this function once the artifact is committed.

    Raises:
        Transient: If the dataset has got another version in the meantime.
    """
    manifest = artifact.manifest
    result = manifest.result
    if result["new"]:
        Dataset(run.store.root.parent, result["dataset"]).accept(result["version"], result["parent"])
    files = Plan.of(manifest.fingerprint).files
    for name, reason in result.get("refused", {}).items():
        set_aside(drop_folder(manifest.part["dataset"]["drop"]) / name, files[name], reason)
