"""Read what stages write about runs: records, work under way, and files of artifacts. Nothing in them is trusted.

A record that cannot be read counts as empty, because one damaged run must not hide the others. Links are not followed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO

from pydantic_core import from_json

from include.artifacts import MANIFEST
from include.at_work import AT_WORK
from include.folders import open_file, open_folder
from spark_bert.deployment.places import home, indexed, run_folder

#: The largest JSON file that is read, in bytes. Those that stages write are far smaller.
_LARGEST = 1 << 25


def read_record(run: str) -> dict[str, Any]:
    """Return the record of a run, with a dictionary under "stages"; without a readable record, an empty one."""
    record = read_json(lambda: open_file(home() / "runs", run, "run.json"))
    return {**record, "stages": {stage: mapping(entry) for stage, entry in mapping(record.get("stages")).items()}}


def read_at_work(run: str) -> dict[str, dict[str, Any]]:
    """Return what each stage that is at work in the run says of itself, by its name.

    A stage that was killed leaves its file behind, so the caller checks whether the run is still at work.
    """
    names: list[str] = []
    with suppress(OSError), open_folder(home() / "runs", run, AT_WORK) as folder:
        names = sorted(os.listdir(folder))  # noqa: PTH208 it lists a descriptor
    stages = [name.removesuffix(".json") for name in names if name.endswith(".json") and not name.startswith(".")]
    return {stage: read_json(partial(open_file, home() / "runs", run, AT_WORK, f"{stage}.json")) for stage in stages}


def open_artifact(record: Mapping[str, Any], stage: str, file: str) -> BinaryIO:
    """Open a file of the artifact that the stage made in a run.

    Raises:
        OSError: if there is no such file in a complete artifact.
    """
    return open_in_artifact(stage, artifact_key(record, stage), file)


def open_in_artifact(stage: str, key: str, file: str) -> BinaryIO:
    """Open a file of an artifact. Raise OSError if there is no such file in a complete artifact."""
    artifact = home() / "artifacts", stage, key
    open_file(*artifact, MANIFEST).close()  # without its manifest, the artifact is not complete
    return open_file(*artifact, *file.split("/"))


def artifact_key(record: Mapping[str, Any], stage: str) -> str:
    """Return the key of the artifact that the stage made in a run, or "" if it made none."""
    key = mapping(record["stages"].get(stage)).get("key")
    return key if isinstance(key, str) else ""


def read_json(open_it: Callable[[], BinaryIO]) -> dict[str, Any]:
    """Return the JSON object in the file that the function opens, or an empty one if there is none."""
    with suppress(OSError, ValueError, RecursionError), open_it() as file:
        if os.fstat(file.fileno()).st_size <= _LARGEST:
            return mapping(parse(file.read()))
    return {}


def parse(text: bytes) -> Any:
    """Return the value of a JSON text. Numbers may be infinite or not a number."""
    return from_json(text)  # it takes a third of the time of json.loads


def mapping(value: Any) -> dict[str, Any]:
    """Return the value if it is a dictionary, and otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def dag_of(run: str, record: Mapping[str, Any]) -> tuple[str, str]:
    """Return the Dag id and the run name (see `run_name`), or two empty texts if the record does not prove them.

    A stage could write the name of another Dag into its record, which other users may read. Its folder's name proves
    the ids, because it contains a digest of them and a stage cannot rename the folder of its run.
    """
    dag_id, run_id = record.get("dag_id"), record.get("run_id")
    index = record.get("map_index", -1)
    if isinstance(dag_id, str) and isinstance(run_id, str) and isinstance(index, int):
        name = indexed(run_id, index)
        if run_folder(dag_id, name).name == run:
            return dag_id, name
    return "", ""


def seconds_since_1970(value: Any) -> float | None:
    """Return a time that is written as a number of seconds or in ISO 8601, or None if it is neither."""
    try:
        seconds = datetime.fromisoformat(value).timestamp() if isinstance(value, str) else float(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) else None
