"""A run's record as tracking needs it: checked, with how the run ended and a digest of its state."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from include.runs import Entry, Recorded, Run
from include.stages import PIPELINE, BadInput

#: The stages that made a model, and in a run of `retrain` what became of it, in order.
_TRACKED = (*PIPELINE, "champion", "challenge", "register", "promote")


class Record(Recorded):
    """What run.json says of a run, and arm.json where it is an ablation's arm."""

    arm: dict[str, Any] = Field(default_factory=dict)

    @property
    def pipeline(self) -> dict[str, Entry]:
        """The stages that made the model and brought it to its end, in order."""
        return {name: self.stages[name] for name in _TRACKED if name in self.stages}

    @property
    def status(self) -> str:
        """How the run ended, in MLflow's words. KILLED: a stage is missing, and none has said why."""
        if any(entry.exit_code for entry in self.pipeline.values()):
            return "FAILED"
        return "FINISHED" if self.stages.keys() & {"export", "promote"} or self.arm else "KILLED"

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to come, as far as can be seen from outside: its own tracking was tried, say."""
        return bool(self.pipeline) and (self.status != "KILLED" or "track" in self.stages)

    @property
    def state(self) -> str:
        """16 hexadecimal digits that are equal while there is nothing new to write down."""
        stages = {name: entry.model_dump() for name, entry in self.pipeline.items()}
        whole = json.dumps([self.experiment, stages, self.arm, self.status], sort_keys=True)
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    def is_tracked(self, uri: str) -> bool:
        """Whether the run's own track has written this very state to that MLflow."""
        result = self.stages["track"].result if "track" in self.stages else {}
        return (result.get("state"), result.get("uri")) == (self.state, uri)


def read(run: Run) -> Record:
    """The run's record. Raises BadInput when it is damaged."""
    arm = run.folder / "arm.json"
    try:
        record = Record.model_validate(run.record())
        return record.model_copy(update={"arm": json.loads(arm.read_text("utf-8")) if arm.is_file() else {}})
    except (ValueError, TypeError) as error:
        file = run.file if isinstance(error, ValidationError | TypeError) else arm
        raise BadInput(f"{file} is damaged: remove {run.folder} and run the stages again") from error


def newest_address(runs: Path) -> str:
    """The MLflow of the run that was tracked last, of those below runs/; "" before the first."""
    newest, address = 0.0, ""
    for file in runs.glob("*/run.json"):
        with suppress(BadInput, OSError):  # of a record that cannot be read nothing is known
            track = read(Run(file.parent)).stages.get("track")
            time = file.stat().st_mtime
            if track and track.result.get("uri") and time > newest:
                newest, address = time, str(track.result["uri"])
    return address


def others(run: Run, uri: str) -> tuple[dict[Path, Record], list[str]]:
    """The other runs beside this one that have ended and are not tracked as they are, and what cannot be read."""
    found: dict[Path, Record] = {}
    warnings: list[str] = []
    for file in sorted(run.folder.parent.glob("*/run.json")):
        if file != run.file:
            try:
                record = read(Run(file.parent))
            except (BadInput, OSError) as error:
                warnings.append(f"{file.parent.name} is not tracked: {error}")
                continue
            if record.has_ended and not record.is_tracked(uri):
                found[file.parent] = record
    return found, warnings
