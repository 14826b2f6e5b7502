"""An index of the records of all runs, which reads a record again only after it has changed.

Stages write the records, so the index trusts nothing in them: it follows no link, and a record that is damaged is
counted and otherwise ignored.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import BaseModel

from include.stages import STAGES, ExitCode
from spark_bert.folders import open_file, open_folder
from spark_bert.places import run_folder

_FILE = "run.json"
#: Bytes. A record of an ablation has about 20,000.
_LARGEST = 10_000_000
#: The name of a folder that `run_folder` has chosen: the Dag, the run, and a digest.
_OF_A_DAG = re.compile("([A-Za-z0-9_]+)-.*-[0-9a-f]{8}")
_VERSION = re.compile("[0-9]{1,9}")
_OUTCOMES: dict[int, str] = {
    ExitCode.DONE: "done", ExitCode.BAD_INPUT: "bad_input", ExitCode.GATE_FAILED: "refused",
    ExitCode.TRANSIENT: "transient", ExitCode.STOPPED: "stopped",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordedStage:
    """What a record says of a stage that has ended.

    Attributes:
        outcome: `done`, `bad_input`, `refused`, `transient`, `stopped`, or `failed`.
        ended: when it has ended, in seconds since 1970.
        seconds: how long it took; None if it made nothing, or has found what it would make.
        rows_per_second: its speed; None if it tells none, or has found what it would make.
    """

    outcome: str
    ended: float
    seconds: float | None
    rows_per_second: float | None


@dataclass(frozen=True, slots=True)
class Champion:
    """The version of a registered model that has the alias `champion`."""

    model: str
    version: int


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What the record of a run says, as far as it is counted.

    Attributes:
        dag_id: the Dag of the run; "" if a command line has started it.
        written: when the record was last written, in seconds since 1970.
        task: the field data.task of the experiment.
        kind: the field model.kind of the experiment.
        model: the field model.name of the experiment.
        stages: the stages that have ended.
        dev_metrics: the metrics of the dev split, by name.
        champion: the champion when the run ended; None if the run did not ask for it, or there was none.
    """

    dag_id: str
    written: float
    task: str
    kind: str
    model: str
    stages: Mapping[str, RecordedStage]
    dev_metrics: Mapping[str, float]
    champion: Champion | None

    @property
    def outcome(self) -> str:
        """The outcome of the first stage that is not done; `done` if there is none so far."""
        return next((stage.outcome for stage in self.stages.values() if stage.outcome != "done"), "done")


@dataclass
class Records:
    """The records in the folder runs/ of a home.

    Attributes:
        home: the home.
        damaged: how many records the last reading could not use.
    """

    home: Path
    damaged: int = 0
    _known: dict[str, tuple[tuple[int, ...], RecordedRun | None]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def runs(self) -> list[RecordedRun]:
        """Return the runs that have a record, the one that was written last at the end."""
        with self._lock:
            self._known = {name: self._read(name, state) for name, state in self._states()}
            found = [run for _, run in self._known.values() if run is not None]
            self.damaged = len(self._known) - len(found)
        return sorted(found, key=lambda run: run.written)

    def _states(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the folders with a record, and the state of its file."""
        try:
            with open_folder(self.home, "runs") as folder, os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(OSError):  # it has no record yet, or is no run
                        yield entry.name, os.stat(f"{entry.name}/{_FILE}", dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return

    def _read(self, name: str, file: os.stat_result) -> tuple[tuple[int, ...], RecordedRun | None]:
        state = (file.st_mtime_ns, file.st_size, file.st_ino)
        known = self._known.get(name)
        if known is not None and known[0] == state:
            return known
        try:
            with open_file(self.home / "runs", name, _FILE) as record:
                whole = _Record.model_validate_json(record.read(_LARGEST))
        except (OSError, ValueError):
            return state, None
        return state, whole.run(name, file.st_mtime)


class _Data(BaseModel):
    task: str = ""


class _Model(BaseModel):
    kind: str = "encoder"  # it is missing in old records
    name: str = ""


class _Experiment(BaseModel):
    data: _Data = _Data()
    model: _Model = _Model()


class _Entry(BaseModel):
    exit_code: int
    result: dict[str, Any] = {}
    ended: float | None = None  # it is missing in old records
    reused: bool = False

    def stage(self, written: float) -> RecordedStage:
        outcome, ended = _OUTCOMES.get(self.exit_code, "failed"), written if self.ended is None else self.ended
        speed = {} if self.reused else _numbers(self.result)
        return RecordedStage(outcome, ended, speed.get("seconds"), speed.get("rows_per_second"))


class _Record(BaseModel):
    dag_id: str = ""
    run_id: str = ""
    experiment: _Experiment = _Experiment()
    stages: dict[str, _Entry]

    def run(self, name: str, written: float) -> RecordedRun:
        stages = {stage: entry.stage(written) for stage, entry in self.stages.items() if stage in STAGES}
        metrics = self._result("evaluate").get("metrics")
        return RecordedRun(
            dag_id=self._dag(name),
            written=written,
            task=self.experiment.data.task,
            kind=self.experiment.model.kind,
            model=self.experiment.model.name,
            stages=stages,
            dev_metrics=_numbers(metrics) if isinstance(metrics, dict) else {},
            champion=self._champion(),
        )

    def _dag(self, name: str) -> str:
        """Return the Dag of the run whose folder has this name: as the record says, if its digest proves that."""
        if self.dag_id and run_folder(self.dag_id, self.run_id).name == name:
            return self.dag_id
        found = _OF_A_DAG.fullmatch(name)
        return found[1] if found else ""

    def _champion(self) -> Champion | None:
        """Return what the stages say that asked for the champion or moved the alias, the last one first."""
        for stage, name in (("rollback", "version"), ("promote", "champion"), ("champion", "version")):
            result = self._result(stage)
            model, version = str(result.get("model", "")), str(result.get(name, ""))
            if _VERSION.fullmatch(version):
                return Champion(model, int(version))
        return None

    def _result(self, stage: str) -> dict[str, Any]:
        return self.stages[stage].result if stage in self.stages else {}


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    """Return the values that are numbers. A metric that is undefined is None."""
    found = {name: value for name, value in values.items() if type(value) in (int, float)}
    return {name: float(value) for name, value in found.items() if abs(value) <= sys.float_info.max}
