"""What a stage's container may use of its machine: a table, and the deployment's changes to it."""

from __future__ import annotations

import json
import os
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from include.stages import STAGES, BadInput

#: Where a deployment says what differs: {"train": {"memory": "12g"}}.
VARIABLE = "SPARK_BERT_LIMITS"


def _bytes(value: object) -> int:
    size = re.fullmatch(r"([1-9]\d*)([kmgt])", str(value).lower())
    if size is None:
        raise ValueError("write a whole number and k, m, g or t, as 12g")
    return int(size[1]) << " kmgt".index(size[2]) * 10


_Bytes = Annotated[int, BeforeValidator(_bytes)]


class Limits(BaseModel):
    """A container's limits; sizes in bytes, written as 12g.

    Attributes:
        memory: of all its processes, files in /tmp and /dev/shm included; whoever wants more is killed.
        cpus: processors, or as many as there are.
        pids: processes and threads.
        tmp: of /tmp, where Spark keeps its scratch files.
        shm: of /dev/shm, through which ranks and data loaders on one machine speak.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    memory: _Bytes
    cpus: float = Field(gt=0, allow_inf_nan=False)
    pids: int = Field(512, gt=0)
    tmp: _Bytes = "2g"  # type: ignore[assignment]  # read as the others are
    shm: _Bytes = "64m"  # type: ignore[assignment]


_TABLE: dict[str, dict[str, Any]] = {
    "validate": {"memory": "4g", "cpus": 4},
    "preprocess": {"memory": "6g", "cpus": 8, "pids": 1024},
    "pretrain": {"memory": "12g", "cpus": 16, "pids": 2048, "shm": "2g"},
    "train": {"memory": "12g", "cpus": 16, "pids": 2048, "shm": "2g"},
    "evaluate": {"memory": "6g", "cpus": 8},
    "challenge": {"memory": "6g", "cpus": 8},  # two models
    "gate": {"memory": "1g", "cpus": 1, "tmp": "512m"},
    "predict": {"memory": "8g", "cpus": 8, "pids": 1024},
    "export": {"memory": "2g", "cpus": 1, "tmp": "512m"},
    "ingest": {"memory": "4g", "cpus": 2, "tmp": "512m"},
    "study": {"memory": "2g", "cpus": 2, "tmp": "512m"},
    "track": {"memory": "1g", "cpus": 1, "tmp": "512m"},
    "champion": {"memory": "1g", "cpus": 1, "tmp": "512m"},
    "register": {"memory": "1g", "cpus": 1, "tmp": "512m"},
    "promote": {"memory": "1g", "cpus": 1, "tmp": "512m"},
    "rollback": {"memory": "1g", "cpus": 1, "tmp": "512m"},
    "prune": {"memory": "1g", "cpus": 1, "tmp": "512m"},
}


def limits(stage: str) -> Limits:
    """The stage's limits. Raises BadInput when $SPARK_BERT_LIMITS is wrong, naming the place and the remedy."""
    changes = _changes()
    try:
        return Limits(**{**_TABLE[stage], **changes.get(stage, {})})
    except ValidationError as error:
        first = error.errors()[0]
        field, wrong = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        known = f"; there are {', '.join(Limits.model_fields)}" if first["type"] == "extra_forbidden" else ""
        raise BadInput(f"{VARIABLE}: {stage}.{field} = {first['input']!r}: {wrong}{known}") from None


def out_of_memory(stage: str) -> str:
    """What to tell a person whose stage its memory limit has ended."""
    limit = limits(stage).memory >> 20
    example = f"""{VARIABLE}='{{"{stage}": {{"memory": "{limit * 2}m"}}}}'"""
    return (
        f"{stage} ran out of memory: its container's limit is {limit} MiB. Raise it, as {example}, or let the "
        "experiment take less (training.batch_size, training.ranks)"
    )


def _changes() -> dict[str, dict[str, Any]]:
    text = os.environ.get(VARIABLE) or "{}"
    example = f"""write as {VARIABLE}='{{"train": {{"memory": "12g"}}}}'"""
    try:
        changes = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{VARIABLE} is not JSON ({error}): {example}") from None
    if not isinstance(changes, dict) or not all(isinstance(values, dict) for values in changes.values()):
        raise BadInput(f"{VARIABLE} must give an object of limits for each stage: {example}")
    unknown = sorted(set(changes) - set(STAGES))
    if unknown:
        raise BadInput(f"{VARIABLE} names the stage {unknown[0]}, but there are {', '.join(STAGES)}")
    return changes
