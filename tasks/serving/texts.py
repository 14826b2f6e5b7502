"""The texts of a request, checked: what both protocols have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from include.text import is_blank, is_unwritable
from tasks.serving.refusal import Refusal
from tasks.serving.service import Answers


@dataclass(frozen=True)
class Asked:
    """What a request asks for.

    Attributes:
        texts: for each column of the model, the sentences of all rows.
        id: the id that the client gives the request; "" for none.
        written: turns the answers and the id into the response.
    """

    texts: list[list[str]]
    id: str
    written: Callable[[Answers, str], Response]


def read_json(body: bytes) -> dict[str, Any]:
    """Read the JSON object of a body.

    Raises:
        Refusal: if it is none.
    """
    try:
        value = json.loads(body.decode())  # from bytes, json would read UTF-16 too
    except UnicodeDecodeError as error:
        raise Refusal(f"the body is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
    except RecursionError as error:
        raise Refusal("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise Refusal(f"the body is not JSON: {error}") from error
    except ValueError as error:  # Python's limit on the digits of a number
        raise Refusal("the body has a number with too many digits") from error
    if not isinstance(value, dict):
        raise Refusal(f"the body is {_kind(value)}: send an object")
    return value


def check_keys(value: dict[str, Any], known: Sequence[str]) -> None:
    """Raise Refusal if the body has a key that means nothing, which may be a misspelled one."""
    for key in value:
        if key not in known:
            raise Refusal(f"the body has the key {key[:50]!r}, which means nothing: the keys are {', '.join(known)}")


def identity(value: dict[str, Any]) -> str:
    """Return the id that a client gives its request; "" for none.

    Raises:
        Refusal: if it is no string that can be written.
    """
    found = value.get("id")
    if found is None:  # as clients write that have none
        return ""
    if not isinstance(found, str) or is_unwritable(found):
        raise Refusal('"id" is not a string, or cannot be written as UTF-8')
    return found


def checked(text: Any, where: str) -> str:
    """Return a text.

    Raises:
        Refusal: if it is something else, empty, or cannot be written as UTF-8.
    """
    if not isinstance(text, str):
        raise Refusal(f"{where} is {_kind(text)}: send a string")
    if is_blank(text):
        raise Refusal(f"{where} is empty")
    if is_unwritable(text):
        raise Refusal(f"{where} contains a NUL character or half of a surrogate pair: remove it")
    return text


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
