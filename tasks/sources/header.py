"""Why a header does not name the columns that it seems to name."""

from __future__ import annotations

from collections.abc import Sequence

from include.text import seen

_SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}


def hint(header: Sequence[str], wanted: Sequence[str]) -> str:
    """What may be wrong with a header that lacks one of the wanted names, as " (...)"; "" when nothing is seen."""
    if len(header) == 1:
        for separator, name in _SEPARATORS.items():
            if separator in header[0]:
                return f" (its columns seem to be separated by {name}: a .csv file has commas, a .tsv file tabs)"
    for name in wanted:
        for found in header:
            if found != name and seen(found) == seen(name):
                return f" ({found!a} differs from {name!a} by what cannot be seen: write the name anew)"
    return ""
