"""What the stages of a run have made: the result, when, and the addresses of the files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from include.stages import ExitCode
from spark_bert.web.links import address
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import mapping, open_in_artifact, seconds_since_1970

Content = TypeVar("Content", bound=BaseModel)
#: How much of a file is read, in bytes. Those that stages write are far smaller.
_LARGEST = 1 << 24


class Source(NamedTuple):
    """The run that something is from.

    Attributes:
        run: the name of its folder.
        dag_id: its Dag; "" if no Dag made it.
        run_id: its run id in Airflow; "" if no Dag made it.
        changed: when its record was last written, in seconds since 1970. What was read of it holds until then.
    """

    run: str
    dag_id: str
    run_id: str
    changed: float

    @classmethod
    def of(cls, row: Row) -> Source:
        """Return the run of a row of the index."""
        return cls(row.run, row.dag_id, row.run_id, row.changed)

    def as_json(self) -> dict[str, str]:
        """Return what a page needs for a link to the run."""
        return {"run": self.run, "dag_id": self.dag_id, "run_id": self.run_id}


@dataclass(frozen=True)
class Result:
    """What a stage has made in a run, whether it has passed or refused.

    Attributes:
        source: the run.
        stage: the stage.
        key: the key of its artifact.
        time: when it ended, in seconds since 1970.
        refused: whether it said no.
        message: why it said no; "" if it did not.
        values: its result as the stage wrote it.
    """

    source: Source
    stage: str
    key: str
    time: float
    refused: bool
    message: str
    values: Mapping[str, Any]

    def read(self, form: type[Content]) -> Content | None:
        """Return the result, or None if it is damaged or of another form."""
        with suppress(ValidationError):
            return form.model_validate(self.values)
        return None

    def href(self, name: str) -> str:
        """Return the address of the file that the result lists under this name; "" if there is none."""
        file = mapping(self.values.get("files")).get(name)
        if not self.source.dag_id or not isinstance(file, str):  # the web app for files serves those of Dag runs
            return ""
        return address(self.source.dag_id, self.source.run_id, self.stage, file)


def result_of(source: Source, record: Mapping[str, Any], stage: str) -> Result | None:
    """Return what a stage has made in a run; None if it has made nothing, or ended in any other way."""
    entry = mapping(record["stages"].get(stage))
    code = entry.get("exit_code")
    if not entry.get("key") or code not in (ExitCode.DONE, ExitCode.GATE_FAILED):
        return None
    time = seconds_since_1970(entry.get("ended"))
    if time is None:
        time = source.changed  # a record that is older than these times
    message = str(entry.get("message") or "")
    return Result(
        source, stage, str(entry["key"]), time, code == ExitCode.GATE_FAILED, message, mapping(entry.get("result"))
    )


def read_artifact(stage: str, key: str, file: str, form: type[Content]) -> Content | None:
    """Return the content of a file of an artifact, or None if it is missing, damaged, or of another form."""
    found = read_file(lambda: open_in_artifact(stage, key, file), form)
    return found[0] if found else None


def read_file(open_it: Callable[[], BinaryIO], form: type[Content]) -> tuple[Content, float] | None:
    """Return the content of a JSON file and when it was written; None if it is missing, damaged, or of another form."""
    with suppress(OSError, ValueError), open_it() as file:
        return form.model_validate_json(file.read(_LARGEST)), os.fstat(file.fileno()).st_mtime
    return None
