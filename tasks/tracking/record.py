"""The record of a run, with the run's status in MLflow and a digest of its state."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from include.runs import ARM, Entry, Recorded, Run
from include.stages import PIPELINE, BadInput

#: The tracked stages in order: those that create the model, and those that decide about it in a run of `retrain`.
_TRACKED = (*PIPELINE, "champion", "challenge", "register", "promote")
#: What MLflow is not told of a stage.
_UNTRACKED = {"started", "ended", "reused"}


class Record(Recorded):
    """The content of a run's run.json and, for an arm of an ablation, of its arm.json."""

    arm: dict[str, Any] = Field(default_factory=dict)

    @property
    def pipeline(self) -> dict[str, Entry]:
        """The tracked stages that the run has finished or failed, in order, with a rollback of its last promotion.

        A run whose experiment was refused has none, because MLflow stores runs by their tasks and parameters.
        """
        found = {name: self.stages[name] for name in _TRACKED if name in self.stages and self.experiment}
        promote, rollback = (self.stages.get(name) for name in ("promote", "rollback"))
        # A promotion after a rollback in the same run leaves the rollback in the record.
        if promote and rollback and (rollback.ended or 0) > (promote.ended or 0):
            found["rollback"] = rollback
        return found

    @property
    def status(self) -> str:
        """FINISHED, FAILED (a rollback counts, as in Airflow), or KILLED: a stage is missing, and none has failed."""
        if "rollback" in self.pipeline or any(entry.exit_code for entry in self.pipeline.values()):
            return "FAILED"
        return "FINISHED" if self.stages.keys() & {"export", "promote"} or self.arm else "KILLED"

    @property
    def has_ended(self) -> bool:
        """Whether the run has probably ended: it has finished or failed, or its own tracking has been tried."""
        return bool(self.pipeline) and (self.status != "KILLED" or "track" in self.stages)

    @property
    def state(self) -> str:
        """A digest of 16 hexadecimal digits that changes whenever there is something new to track."""
        stages = {name: entry.model_dump(exclude=_UNTRACKED) for name, entry in self.pipeline.items()}
        whole = json.dumps([self.experiment, stages, self.arm, self.status], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    def is_tracked(self, uri: str) -> bool:
        """Return whether the run has itself written this state to the MLflow at this address."""
        result = self.stages["track"].result if "track" in self.stages else {}
        return (result.get("state"), result.get("uri")) == (self.state, uri)


def read(run: Run) -> Record:
    """Read the record of a run.

    Raises:
        BadInput: If run.json or arm.json is damaged.
    """
    arm = run.folder / ARM
    try:
        told = json.loads(arm.read_text(encoding="utf-8")) if arm.is_file() else {}
        return Record.model_validate({**run.record(), "arm": told})
    except ValueError as error:
        raise BadInput(f"{arm} is damaged: remove {run.folder} and run the stages again") from error


def newest_address(runs: Path) -> str:
    """Return the address of the MLflow that a run below the folder was tracked in last; "" if there is none."""
    newest, address = 0.0, ""
    for file in runs.glob("*/run.json"):
        with suppress(BadInput, OSError):  # an unreadable record says nothing about where the run was tracked
            track = read(Run(file.parent)).stages.get("track")
            time = file.stat().st_mtime
            if track and track.result.get("uri") and time > newest:
                newest, address = time, str(track.result["uri"])
    return address


def others(run: Run, uri: str) -> tuple[dict[str, str], list[str]]:
    """Return name to state of the home's other runs that have ended and are not tracked, and a line per unreadable run.

    Args:
        run: The run to leave out.
        uri: The address of the MLflow.
    """
    found: dict[str, str] = {}
    warnings: list[str] = []
    for file in sorted(run.folder.parent.glob("*/run.json")):
        if file == run.file:
            continue
        try:
            record = read(Run(file.parent))
        except (BadInput, OSError) as error:
            warnings.append(f"{file.parent.name} is not tracked: {error}")
            continue
        if record.has_ended and not record.is_tracked(uri):
            found[file.parent.name] = record.state
    return found, warnings
