"""Resource limits of the containers of stages: those of the stage's row, and the deployment's changes to them."""

from __future__ import annotations

import json
import os
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from include.stages import STAGES, BadInput

VARIABLE = "SPARK_BERT_LIMITS"


def _bytes(value: object) -> int:
    size = re.fullmatch(r"([1-9]\d*)([kmgt])", str(value).lower())
    if size is None:
        raise ValueError("write a whole number followed by k, m, g or t, for example 12g")
    return int(size[1]) << " kmgt".index(size[2]) * 10


_Bytes = Annotated[int, BeforeValidator(_bytes)]


class Limits(BaseModel):
    """The resource limits of a container. A deployment writes sizes as `12g`; the model holds them in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    memory: _Bytes  # of all processes, with the files in /tmp and /dev/shm; a process that exceeds it is killed
    cpus: float = Field(gt=0, allow_inf_nan=False)  # all of the machine's if it has fewer
    pids: int = Field(512, gt=0)  # processes and threads
    tmp: _Bytes = "2g"  # type: ignore[assignment]  # validated like the others; Spark keeps its scratch files there
    shm: _Bytes = "64m"  # type: ignore[assignment]  # through which ranks and data loaders communicate


def limits(stage: str) -> Limits:
    """Return the limits of the stage. Raise BadInput if $SPARK_BERT_LIMITS is not valid."""
    changes = _changes()
    try:
        return Limits.model_validate({**STAGES[stage].limits, **changes.get(stage, {})})
    except ValidationError as error:
        first = error.errors()[0]
        field, wrong = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        known = f"; the limits are {', '.join(Limits.model_fields)}" if first["type"] == "extra_forbidden" else ""
        raise BadInput(f"{VARIABLE}: {stage}.{field} = {first['input']!r}: {wrong}{known}") from None


def out_of_memory(stage: str) -> str:
    """Return the error message for a stage that has exceeded its memory limit."""
    limit = limits(stage).memory >> 20
    example = f"""{VARIABLE}='{{"{stage}": {{"memory": "{limit * 2}m"}}}}'"""
    less = "reduce training.batch_size or training.ranks in the experiment"
    if "prediction" in STAGES[stage].reads:
        less = "write prediction.form=torch-fp32 in the experiment: its workers share the weights"
    return (
        f"{stage} ran out of memory: its container's limit is {limit} MiB. Raise it, for example with {example}, or "
        f"{less}"
    )


def _changes() -> dict[str, dict[str, Any]]:
    text = os.environ.get(VARIABLE) or "{}"
    example = f"""write it as {VARIABLE}='{{"train": {{"memory": "12g"}}}}'"""
    try:
        changes = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{VARIABLE} is not JSON ({error}): {example}") from None
    if not isinstance(changes, dict) or not all(isinstance(values, dict) for values in changes.values()):
        raise BadInput(f"{VARIABLE} is not an object that maps stages to objects of limits: {example}")
    unknown = sorted(set(changes) - set(STAGES))
    if unknown:
        raise BadInput(f"{VARIABLE} names the unknown stage {unknown[0]}: write one of {', '.join(STAGES)}")
    return changes
