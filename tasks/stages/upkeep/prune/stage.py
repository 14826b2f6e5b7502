"""The stage prune: list, and optionally remove, what no run, registered version, dataset or study refers to."""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from include.artifacts import MANIFEST, locked, write_json
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.context import Context, Outcome
from tasks.stages.upkeep.prune.references import folders, referred
from tasks.tracking.record import newest_address
from tasks.tracking.registry import Version, all_versions, now
from tasks.tracking.server import Server

_KEY = re.compile("[0-9a-f]{16}")
#: The partial output of a killed stage. The next run of the stage removes it, but only until the host is rebooted.
_LEFTOVER = re.compile(r"\.[0-9a-f]{16}-.+")
_DAY = 86400
KINDS = ("runs", "artifacts", "checkpoints", "leftovers")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UnusedFolder:
    """A folder that nothing refers to, of one of the KINDS, with its size and the days since its last use."""

    kind: str
    path: Path
    bytes: int
    days: float


def plan(experiment: Experiment, run: Run) -> str:
    """Return the current time, so that the stage always runs again."""
    return now()


def run(context: Context, plan: str) -> Outcome:
    """List the unused folders, and remove them if retention.remove is set."""
    home, asked = context.run.store.root.parent, context.experiment.retention
    runs, artifacts = referred(home, _versions(home), lambda folder: age(folder) < asked.days)
    found: list[UnusedFolder] = []
    for kind, folder in _unused(home, runs, artifacts):
        with suppress(FileNotFoundError):  # a stage may commit or remove it in the meantime
            if (days := age(folder)) >= asked.days:
                found.append(UnusedFolder(kind, folder, sum(_sizes(folder)), days))
    for one in found:
        log.info("unused for %.0f days: %s, %.1f MB", one.days, one.path, one.bytes / 1e6)
    removed, warnings = _remove(found, asked.days) if asked.remove else ([], [])
    whole = [{**asdict(one), "path": str(one.path.relative_to(home)), "removed": one in removed} for one in found]
    write_json(context.output / "prune.json", {"days": asked.days, "remove": asked.remove, "unused": whole})
    counts = {kind: sum(one.kind == kind for one in found) for kind in KINDS}
    size, freed = (sum(one.bytes for one in some) for some in (found, removed))
    log.info(
        "%.1f MB are unused, and %.1f MB were removed (retention.remove=true removes them)", size / 1e6, freed / 1e6
    )
    result = {**counts, "bytes": size, "removed": len(removed), "freed": freed, "warnings": warnings}
    return Outcome({**result, "files": {"list": "prune.json"}})


def age(path: Path) -> float:
    """Return the days since a folder, which the runner touches when a stage uses it, or an entry of it was changed."""
    newest = path.lstat().st_mtime
    with os.scandir(path) as entries:
        newest = max([newest, *(entry.stat(follow_symlinks=False).st_mtime for entry in entries)])
    return (time.time() - newest) / _DAY


def _remove(found: list[UnusedFolder], days: float) -> tuple[list[UnusedFolder], list[str]]:
    """Remove the folders, and return those that were removed and one warning per folder that could not be removed."""
    removed: list[UnusedFolder] = []
    warnings: list[str] = []
    for one in found:
        try:
            if _remove_folder(one, days):
                removed.append(one)
        except OSError as error:
            warnings.append(f"{one.path} cannot be removed: {error}")
            log.warning("%s", warnings[-1])
    return removed, warnings


def _remove_folder(unused: UnusedFolder, days: float) -> bool:
    """Remove a folder, and return whether it is gone: it stays if it was used within these days, or is locked."""
    path = unused.path
    if age(path) < days:
        return False
    with suppress(Transient):
        if unused.kind == "checkpoints":
            with locked(path):
                shutil.rmtree(path)
        else:
            for first in (MANIFEST, "run.json"):  # so that an incompletely removed folder does not count as complete
                (path / first).unlink(missing_ok=True)
            shutil.rmtree(path)
        return True
    return False


def _sizes(path: Path) -> Iterator[int]:
    for folder, _, files in os.walk(path):
        for name in files:
            with suppress(FileNotFoundError):
                yield Path(folder, name).lstat().st_size


def _versions(home: Path) -> list[Version]:
    """Return the registered versions. Raise BadInput unless MLflow is the one that this home's runs are tracked in."""
    server, newest = Server(home), newest_address(home / "runs")
    if newest and newest != server.uri:
        raise BadInput(
            f"the newest tracked run is in the MLflow at {newest}, but the champions would be read from {server.uri}; "
            "nothing was removed: set MLFLOW_TRACKING_URI to the MLflow that knows the champions"
        )
    versions = all_versions(server)
    if not versions and folders(home / "artifacts/register"):
        raise BadInput(
            f"models of this home were registered, but the MLflow at {server.uri} has no versions; nothing was "
            f"removed: set MLFLOW_TRACKING_URI to the MLflow that has them or, if they were deleted there, remove "
            f"{home / 'artifacts/register'}"
        )
    return versions


def _unused(home: Path, runs: set[str], artifacts: set[tuple[str, str]]) -> Iterator[tuple[str, Path]]:
    """Yield the kind and the path of each folder that is none of the runs and artifacts that are kept."""
    for folder in folders(home / "runs"):
        if folder.name not in runs:
            yield "runs", folder
    for stage in folders(home / "artifacts"):
        for folder in folders(stage):
            if _KEY.fullmatch(folder.name) and (stage.name, folder.name) not in artifacts:
                yield "artifacts", folder
            elif _LEFTOVER.fullmatch(folder.name):
                yield "leftovers", folder
    for stage in folders(home / "checkpoints"):
        for folder in folders(stage):
            yield "checkpoints", folder
