"""Explain why a header lacks a column that it seems to have."""

from __future__ import annotations

from collections.abc import Sequence

from include.text import seen

_SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}


def visible(header: Sequence[str], wanted: Sequence[str]) -> str:
    """Return the names in a header for a message, with blanks and invisible characters at their ends made visible."""
    names = [name if name.isprintable() and name == name.strip() and name else ascii(name) for name in header]
    return f"{', '.join(names)[:200]}{hint(header, wanted)}"


def hint(header: Sequence[str], wanted: Sequence[str]) -> str:
    """Return a guess why the header lacks one of the wanted names, as " (...)"; "" if nothing unusual is found."""
    if len(header) == 1:
        for separator, name in _SEPARATORS.items():
            if separator in header[0]:
                return f" (its columns seem to be separated by {name}: use commas in a .csv file, tabs in a .tsv file)"
    for name in wanted:
        for found in header:
            if found != name and found.strip(" ") == name.strip(" "):
                return f" ({found!a} has blanks around the name: remove them in the file, or write them here)"
            if found != name and seen(found) == seen(name):
                return f" ({found!a} differs from {name!a} in invisible characters only: type the name again)"
    return ""
