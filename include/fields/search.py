"""The search for good settings: what is tried, for how long, and how the winner is checked."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, ValidationError, field_validator, model_validator

from include.fields.base import Section, Seed
from include.text import shown

_MINUTES = {"s": 1 / 60, "m": 1.0, "h": 60.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])")


class Range(Section):
    """The numbers that are tried for a field: all between two bounds, or those in steps from the lower one."""

    low: float
    high: float
    log: bool = False  # whether each power of ten is as likely as the next
    step: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _is_not_empty(self) -> Range:
        if self.low >= self.high:
            raise ValueError(f"low {self.low:g} must be less than high {self.high:g}")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other: write one of them")
        if self.log and self.low <= 0:
            raise ValueError(f"low {self.low:g} has no logarithm: write a number above 0, or log: false")
        return self


class Search(Section):
    """The search for good settings. Only the stages `search` and `recommend` use this section."""

    name: str = Field(
        "",
        pattern="^[A-Za-z0-9_-]{0,80}$",
        description="Name of the search; a search of a known name goes on. If empty, the task and a digest of all that "
        "the trials depend on.",
    )
    space: dict[str, Any] = Field(
        {},
        description="What is tried: for each field, as section.field, a list of values, or the bounds of a number, "
        'for example {"training.learning_rate": {"low": 1e-5, "high": 1e-4, "log": true}, "training.batch_size": '
        '[16, 32]}; with "step", only multiples of it from low on. If empty: learning rate, epochs, batch size, warmup '
        "and layer decay.",
    )
    minutes: float = Field(
        30,
        gt=0,
        le=100_000,
        description="Minutes of work, of all processes together, after which nothing new is tried. A text may have "
        "another unit: 45s, 30m, 2h.",
    )
    trials: int = Field(0, ge=0, le=9999, description="Largest number of settings that are tried. 0: no limit.")
    seeds: int = Field(
        3,
        ge=1,
        le=20,
        description="Number of seeds, none of them that of the search, with which winner and default are compared.",
    )
    seed: Seed = Field(1, description="Random seed of the proposals.")

    @field_validator("minutes", mode="before")
    @classmethod
    def _reads_duration(cls, value: Any) -> Any:
        found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        return float(found[1]) * _MINUTES[found[2]] if found else value

    @field_validator("space")
    @classmethod
    def _entries_are_ranges_or_lists(cls, space: dict[str, Any]) -> dict[str, Range | tuple[Any, ...]]:
        return {name: _entry(name, value) for name, value in space.items()}


def _entry(name: str, value: Any) -> Range | tuple[Any, ...]:
    if isinstance(value, list | tuple) and len(value):
        return tuple(value)
    if isinstance(value, Range):
        return value
    if isinstance(value, dict) and {"low", "high"} <= value.keys() <= Range.model_fields.keys():
        try:
            return Range.model_validate(value)
        except ValidationError as error:
            problem = error.errors()[0]
            where, message = ".".join([name, *map(str, problem["loc"])]), problem["msg"].removeprefix("Value error, ")
            raise ValueError(f"{where}: {message[0].lower()}{message[1:]}") from None
    raise ValueError(
        f"{name}: {shown(value)} is not what can be tried: write a list of values, or {{low: 1, high: 4}}, with "
        "log: true or step: 1 if you like"
    )
