"""What all sections have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from include.text import is_unwritable

Share = Annotated[float, Field(ge=0, le=1)]
#: A metric's threshold. Correlations may be negative, hence the lower bound of -1 for every metric.
Threshold = Annotated[float, Field(ge=-1, le=1)] | None


class Section(BaseModel):
    """A part of the experiment. It is immutable and rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _can_be_written(cls, value: Any) -> Any:
        unwritable = next(filter(is_unwritable, _texts(value)), None)
        if unwritable is not None:
            raise ValueError(
                f"{unwritable[:80]!a} contains a NUL character or half of a surrogate pair, which cannot be stored in "
                "a file: remove it"
            )
        return value


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in the value of a field."""
    match value:
        case str():
            yield value
        case dict():
            yield from (text for pair in value.items() for item in pair for text in _texts(item))
        case tuple():
            yield from (text for item in value for text in _texts(item))
