"""Read what stages write about runs, and trust nothing: follow no links, and take what cannot be read as empty."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from include.artifacts import MANIFEST
from include.folders import open_file, open_folder
from include.runs import AT_WORK
from include.stages import ExitCode
from spark_bert.deployment.places import home, indexed, run_folder

Content = TypeVar("Content", bound=BaseModel)
_LARGEST = 1 << 25  # bytes of a JSON file; those that stages write are far smaller
_OUTCOMES: dict[int | None, str] = {
    ExitCode.DONE: "done", ExitCode.BAD_INPUT: "bad_input", ExitCode.GATE_FAILED: "refused",
    ExitCode.TRANSIENT: "transient", ExitCode.STOPPED: "stopped",
}  # fmt: skip
#: What the panel calls outcomes whose difference matters only to Airflow, which tries some of them again.
_STATES = {"bad_input": "failed", "transient": "failed"}
_VERSION = re.compile("[0-9]{1,9}")


class Champion(NamedTuple):
    """The version of a registered model that has the alias `champion`."""

    model: str
    version: int


class Entry(NamedTuple):
    """What a record says of a stage that has ended. Times are in seconds since 1970."""

    key: str  # "" if the stage made nothing
    exit_code: int | None  # None if the entry is damaged
    outcome: str  # done, bad_input, refused, transient, stopped or failed
    message: str
    started: float | None
    ended: float | None
    reused: bool
    result: Mapping[str, Any]

    @property
    def made(self) -> bool:
        """Whether the stage has made an artifact, even if its verdict refuses."""
        return bool(self.key) and self.outcome in ("done", "refused")

    def measured(self, name: str) -> float | None:
        """Return a number in the result, unless the stage has only found what it would make."""
        value = None if self.reused else self.result.get(name)
        return value if is_number(value) else None


class Record(NamedTuple):
    """What is known of a run. Both ids are "" if the record does not prove them."""

    dag_id: str
    run_id: str  # with the index in a mapped task group; see run_name
    experiment: Mapping[str, Any]
    stages: Mapping[str, Entry]

    def key(self, stage: str) -> str:
        """Return the key of the artifact that a stage made, or "" if it made none."""
        return self.stages[stage].key if stage in self.stages else ""


def read_record(run: str) -> Record:
    """Return the record of a run, an empty one if there is none that can be read."""
    record, _ = read_json(home() / "runs", run, "run.json")
    stages = {stage: _entry(mapping(entry)) for stage, entry in mapping(record.get("stages")).items()}
    return Record(*_dag_of(run, record), mapping(record.get("experiment")), stages)


def _entry(entry: Mapping[str, Any]) -> Entry:
    key, result = entry.get("key"), mapping(entry.get("result"))
    code = entry["exit_code"] if type(entry.get("exit_code")) is int else None
    outcome = _OUTCOMES.get(code, "failed")
    refused_files = [str(why) for why in mapping(result.get("refused")).values()]
    if outcome == "done" and refused_files and result.get("new") is not True:
        outcome = "refused"
    return Entry(
        key if isinstance(key, str) else "",
        code,
        outcome,
        str(entry.get("message") or " ".join(refused_files)),
        seconds_since_1970(entry.get("started")),
        seconds_since_1970(entry.get("ended")),
        entry.get("reused") is True,
        result,
    )


def _dag_of(run: str, record: Mapping[str, Any]) -> tuple[str, str]:
    """Return the Dag id and the run name, or two empty texts if the digest in the folder's name does not prove them.

    A stage could write the name of another Dag, which other users may read, but it cannot rename the folder of its run.
    """
    dag_id, run_id, index = record.get("dag_id"), record.get("run_id"), record.get("map_index", -1)
    if isinstance(dag_id, str) and isinstance(run_id, str) and isinstance(index, int):
        name = indexed(run_id, index)
        if run_folder(dag_id, name).name == run:
            return dag_id, name
    return "", ""


def outcome_of(stages: Mapping[str, Entry]) -> str:
    """Return the outcome of the first stage that is not done, `done` if there is none so far. Tracking fails no run."""
    ended = (stage.outcome for name, stage in stages.items() if name != "track")
    return next((outcome for outcome in ended if outcome != "done"), "done")


def state_of(outcome: str) -> str:
    """Return the state that the panel shows for an outcome: `done`, `refused`, `stopped`, or `failed`."""
    return _STATES.get(outcome, outcome)


def seconds_at_work(stages: Iterable[Entry]) -> float | None:
    """Return how long at least one of the stages was at work, in s, without pauses; None if no times are known."""
    times = sorted((one.started, one.ended) for one in stages if one.started is not None and one.ended is not None)
    total, until = 0.0, -math.inf
    for started, ended in times:
        total += max(0.0, ended - max(started, until))
        until = max(until, ended)
    return total if times else None


def find_champion(stages: Mapping[str, Entry]) -> Champion | None:
    """Return what the stages say that asked for the champion or moved the alias, the last one first."""
    for stage, name in (("rollback", "version"), ("promote", "champion"), ("champion", "version")):
        result = stages[stage].result if stage in stages else {}
        version = str(result.get(name, ""))
        if _VERSION.fullmatch(version):
            return Champion(str(result.get("model", "")), int(version))
    return None


def read_at_work(run: str) -> dict[str, dict[str, Any]]:
    """Return what each stage at work in the run says of itself, by its name. A stage that was killed still does."""
    names = [name for name in list_names(home() / "runs", run, AT_WORK) if name.endswith(".json") and name[0] != "."]
    return {name.removesuffix(".json"): read_json(home() / "runs", run, AT_WORK, name)[0] for name in names}


def open_artifact(stage: str, key: str, file: str) -> BinaryIO:
    """Open a file of an artifact. Raise OSError if there is no such file in a complete artifact."""
    artifact = home() / "artifacts", stage, key
    open_file(*artifact, MANIFEST).close()  # without its manifest, the artifact is not complete
    return open_file(*artifact, file)


def list_names(root: Path, *folders: str) -> list[str]:
    """Return the names in a folder, none if there is no such folder."""
    with suppress(OSError), open_folder(root, *folders) as folder:
        return sorted(os.listdir(folder))  # noqa: PTH208 it lists a descriptor
    return []


def read_json(root: Path, *names: str) -> tuple[dict[str, Any], float]:
    """Return the JSON object in a file and when it was written, in seconds since 1970; ({}, 0) if there is none."""
    with suppress(OSError, ValueError, RecursionError), open_file(root, *names) as file:
        found = os.fstat(file.fileno())
        if found.st_size <= _LARGEST:
            return mapping(parse(file.read())), found.st_mtime
    return {}, 0


def read_artifact(stage: str, key: str, file: str) -> dict[str, Any]:
    """Return the JSON object in a file of a complete artifact, {} if there is none."""
    with suppress(OSError, ValueError), open_artifact(stage, key, file):
        return read_json(home() / "artifacts", stage, key, file)[0]
    return {}


def parse(text: bytes) -> Any:
    """Return the value of a JSON text. Numbers may be infinite or not a number."""
    return from_json(text)  # it takes a third of the time of json.loads


def fit(form: type[Content], values: Mapping[str, Any]) -> Content | None:
    """Return the values in a form, or None if they do not have it."""
    with suppress(ValidationError):
        return form.model_validate(values)
    return None


def mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a dictionary, and otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def is_number(value: Any) -> bool:
    """Return whether the value is a finite number. A metric that is undefined is None."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def seconds_since_1970(value: Any) -> float | None:
    """Return a time that is written as a number of seconds or in ISO 8601, or None if it is neither."""
    try:
        seconds = datetime.fromisoformat(value).timestamp() if isinstance(value, str) else float(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None
