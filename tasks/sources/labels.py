"""How labels are written: lists as text, columns of 0 and 1, and different spellings of the same label."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Context, Decimal

from include.fields.data import Data
from include.text import shown

#: Returns the label of a row, given its fields other than the texts. Raises ValueError if there is none.
ReadLabel = Callable[[Sequence[str]], str]

_NO_COMMA = re.compile(r"""(?<=['"])\s+(?=['"])""")  # how numpy and R print a list
_FLAGS = dict.fromkeys(("1", "1.0", "true", "yes"), True) | dict.fromkeys(("0", "0.0", "false", "no", ""), False)
_SHOWN = 8  # labels that a message lists


def read_cell(data: Data, several: bool) -> ReadLabel:
    """Return how to read a column of labels, of which a row may have several or only one."""
    known, separator = data.label_map, data.label_separator
    if not several:
        return lambda fields: known.get(fields[0], fields[0])
    return lambda fields: separator.join(known.get(label, label) for label in labels_in(fields[0], separator))


def read_flags(labels: Sequence[str], separator: str) -> ReadLabel:
    """Return how to read columns of 0 and 1, one for each label, as the text of a column of labels."""

    def read(fields: Sequence[str]) -> str:
        chosen = []
        for label, field in zip(labels, fields, strict=True):
            flag = _FLAGS.get(field.strip().lower())
            if flag is None:
                raise ValueError(f"the column {label!r} has {shown(field)}, not 0 or 1")
            if flag:
                chosen.append(label)
        return separator.join(chosen)

    return read


def labels_in(cell: str, separator: str) -> list[str]:
    """Return the labels in a cell: a list as Python or JSON writes it, or a text with a separator."""
    if (found := as_list(cell)) is not None:
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
    """Return texts that seem to be another spelling of a label, or of a more frequent text if there are no labels."""
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
    if len(found) > _SHOWN:
        parts.append(f"and {len(found) - _SHOWN} more")
    return ", ".join(parts)


def _essence(label: str) -> str:
    """Return what remains of a label without case, blanks, and the form of a number."""
    text = " ".join(label.casefold().split())
    try:
        return str(Decimal(text).normalize(Context(prec=len(text) or 1)))  # a float would round long numbers
    except ArithmeticError:
        return text


def number(text: str) -> float | None:
    """Return the number that a text is, or None. What only Python accepts is none: 1_0, and digits of other scripts."""
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None
