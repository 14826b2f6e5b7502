"""What all sections have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from include.text import is_number, is_unwritable, shown

#: A login or another secret in the address of a database: as a parameter, before the host, or before Oracle's.
_LOGIN = re.compile(r"(?i)\b(user|username)=|(password|passwd|pwd|secret|token)\d*=|//[^/?@]+@|thin:[^@]+@")
#: How YAML writes that there is no value.
_NULL = ("", "~", "null")
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


def known_name(what: str, names: Callable[[], Iterable[str]]) -> AfterValidator:
    """Return a validator for the name of a row of a table, which is read when a value is checked."""

    def check(name: str) -> str:
        if name not in names():
            raise ValueError(f"there is no {what} {shown(name)}: write one of {', '.join(names())}")
        return name

    return AfterValidator(check)


def listed_names(names: Callable[[], Iterable[str]]) -> Any:
    """Return the field that adds the names to a JSON schema, so that the trigger form offers a drop-down list."""

    def add(schema: dict[str, Any]) -> None:
        schema["enum"] = list(names())

    return Field(json_schema_extra=add)


def has_login(address: str) -> bool:
    """Return whether an address contains a login, which the record of a run would show."""
    return _LOGIN.search(address) is not None


class Section(BaseModel):
    """A part of the experiment. It is immutable and rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _reads_text(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        """Read the text of a YAML value as the field's type: also 1e3 as a whole number, and null as no value."""
        try:
            return validate(value)
        except ValidationError:
            with suppress(ValidationError):
                if isinstance(value, str) and value.lower() in _NULL:
                    return validate(None)
                if isinstance(value, str) and is_number(value):
                    return validate(float(value))
            raise

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
    match value:
        case str():
            yield value
        case dict():
            yield from (text for pair in value.items() for item in pair for text in _texts(item))
        case tuple():
            yield from (text for item in value for text in _texts(item))
