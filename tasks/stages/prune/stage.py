"""The stage prune: what no run, registered version, dataset or study refers to; removed if the experiment says so."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.stages.prune.folders import Unused, age, folders, remove
from tasks.stages.prune.references import References, referred
from tasks.tracking.record import newest_address
from tasks.tracking.registry import Version, all_versions, now
from tasks.tracking.server import Server

_KEY = re.compile("[0-9a-f]{16}")
#: What a killed stage had half written; on the same boot of its host, the next run of that stage removes it.
_LEFTOVER = re.compile(r"\.[0-9a-f]{16}-.+")
KINDS = ("runs", "artifacts", "checkpoints", "leftovers")

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """The time: whoever asks again wants it looked at again."""
    return now()


def run(context: Context) -> Outcome:
    """List what is unused, and remove it if the experiment says so.

    Raises Transient while MLflow does not answer, and BadInput where it is another one than the runs were tracked in:
    champions are known there alone. Then nothing is removed.
    """
    home, asked = context.run.store.root.parent, context.experiment.retention
    kept = referred(home, _versions(home), lambda folder: age(folder) < asked.days)
    found = list(_unused(home, kept, asked.days))
    for one in found:
        log.info("unused for %.0f days: %s, %.1f MB", one.days, one.path, one.bytes / 1e6)
    removed, warnings = _remove(found, asked.days) if asked.remove else ([], [])
    whole = [{**asdict(one), "path": str(one.path.relative_to(home)), "removed": one in removed} for one in found]
    write_json(context.output / "prune.json", {"days": asked.days, "remove": asked.remove, "unused": whole})
    counts = {kind: sum(one.kind == kind for one in found) for kind in KINDS}
    size, freed = (sum(one.bytes for one in some) for some in (found, removed))
    log.info("%.1f MB are unused, %.1f MB were removed (retention.remove=true removes)", size / 1e6, freed / 1e6)
    result = {**counts, "bytes": size, "removed": len(removed), "freed": freed, "warnings": warnings}
    return Outcome({**result, "files": {"list": "prune.json"}})


def _remove(found: list[Unused], days: float) -> tuple[list[Unused], list[str]]:
    """Those that could be removed, and what to say of those that may not be."""
    removed: list[Unused] = []
    warnings: list[str] = []
    for one in found:
        try:
            if remove(one, days):
                removed.append(one)
        except OSError as error:
            warnings.append(f"{one.path} cannot be removed: {error}")
            log.warning("%s", warnings[-1])
    return removed, warnings


def _versions(home: Path) -> list[Version]:
    """The registered versions, of the MLflow that this home's runs are tracked in."""
    server, newest = Server(home), newest_address(home / "runs")
    if newest and newest != server.uri:
        raise BadInput(
            f"the newest tracked run is in the MLflow at {newest}, and {server.uri} was to be asked for the champions; "
            f"nothing was removed: set MLFLOW_TRACKING_URI to the one that has them"
        )
    versions = all_versions(server)
    if not versions and folders(home / "artifacts/register"):
        raise BadInput(
            f"models of this home were registered, and the MLflow at {server.uri} has no version of any; nothing was "
            f"removed: set MLFLOW_TRACKING_URI to the one that has them, or, if they were deleted there, remove "
            f"{home / 'artifacts/register'}"
        )
    return versions


def _unused(home: Path, kept: References, days: float) -> Iterator[Unused]:
    for folder in folders(home / "runs"):
        if folder.name not in kept.runs:
            yield from _old("runs", folder, days)
    for stage in folders(home / "artifacts"):
        for folder in folders(stage):
            if _KEY.fullmatch(folder.name) and (stage.name, folder.name) not in kept.artifacts:
                yield from _old("artifacts", folder, days)
            elif _LEFTOVER.fullmatch(folder.name):
                yield from _old("leftovers", folder, days)
    for stage in folders(home / "checkpoints"):
        for folder in folders(stage):
            yield from _old("checkpoints", folder, days)


def _old(kind: str, folder: Path, days: float) -> Iterator[Unused]:
    with suppress(FileNotFoundError):  # a stage has committed or removed it in the meantime
        if age(folder) >= days:
            yield Unused.at(kind, folder)
