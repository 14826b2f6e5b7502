"""How labels are written: lists as text, columns of 0 and 1, and different spellings of the same label."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Context, Decimal

from include.sections import Data
from include.text import shown

#: Returns the label of a row, given its fields. Raises ValueError if there is none.
ReadLabel = Callable[[Sequence[str]], str]

_NO_COMMA = re.compile(r"""(?<=['"])\s+(?=['"])""")  # how numpy and R print a list
_FLAGS = dict.fromkeys(("1", "1.0", "true", "yes"), True) | dict.fromkeys(("0", "0.0", "false", "no", ""), False)
_SHOWN = 8  # labels that a message lists


def read_cell(data: Data, place: int, several: bool) -> ReadLabel:
    """Return how to read the column of labels at this place.

    If a row may have several labels, they are returned with data.label_separator between them.
    """
    known, separator = data.label_map, data.label_separator
    if not several:
        return lambda fields: known.get(fields[place], fields[place])

    def read(fields: Sequence[str]) -> str:
        return separator.join(known.get(label, label) for label in labels_in(fields[place], separator))

    return read


def read_flags(places: Mapping[str, int], separator: str) -> ReadLabel:
    """Return how to read columns of 0 and 1, one for each label, as labels with a separator between them."""

    def read(fields: Sequence[str]) -> str:
        flags = {label: _FLAGS.get(fields[place].strip().lower()) for label, place in places.items()}
        wrong = next((label for label, flag in flags.items() if flag is None), None)
        if wrong is not None:
            raise ValueError(f"the column {wrong!r} has {shown(fields[places[wrong]])}, not 0 or 1")
        return separator.join(label for label, flag in flags.items() if flag)

    return read


def labels_in(cell: str, separator: str) -> list[str]:
    """Return the labels in a cell: a list as Python or JSON writes it, or a text with a separator.

    Raises:
        ValueError: If the cell is a list without commas.
    """
    found = as_list(cell)
    if found is not None:
        return found
    return [part.strip() for part in cell.split(separator)] if cell.strip() else []


def as_list(cell: str) -> list[str] | None:
    """Return the items of a list that is written as text; None if it is none. Raise ValueError if it has no commas."""
    text = cell.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    if _NO_COMMA.search(text):
        raise ValueError(f"the list {shown(text)} has no commas: write it as ['a', 'b']")
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        try:
            items = ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return None
    return ["" if item is None else item if isinstance(item, str) else str(item) for item in items]


def spellings(found: Mapping[str, int], labels: Iterable[str]) -> dict[str, str]:
    """Return which of the texts that were found seem to be another spelling of a label, and of which.

    Args:
        found: Text to the number of rows that have it.
        labels: The labels; if there are none, the most frequent of the texts that are alike.
    """
    likely = sorted(found, key=lambda text: (-found[text], text))
    first: dict[str, str] = {}
    for label in (*labels, *([] if labels else likely)):
        first.setdefault(_essence(label), label)
    known = set(labels) or set(first.values())
    return {text: first[_essence(text)] for text in likely if text not in known and _essence(text) in first}


def map_hint(alike: Mapping[str, str]) -> str:
    """Return how to write down spellings."""
    return f"data.label_map: {json.dumps(dict(alike), ensure_ascii=False)}"


def listed(found: Mapping[str, int]) -> str:
    """Return texts with their numbers of rows, the most frequent first."""
    parts = [
        f"{shown(text)} ({rows:,} {'row' if rows == 1 else 'rows'})"
        for text, rows in Counter(found).most_common(_SHOWN)
    ]
    return ", ".join(parts + ([f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []))


def _essence(label: str) -> str:
    """Return what remains of a label without case, blanks, and the form of a number."""
    text = " ".join(label.casefold().split())
    try:
        return str(Decimal(text).normalize(Context(prec=len(text) or 1)))  # a float would round long numbers
    except ArithmeticError:
        return text
