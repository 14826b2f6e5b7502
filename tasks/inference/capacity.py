"""How many texts the service answers with one package, compared with another: a form may be several times as fast."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tasks.inference.packaged_model import DESCRIPTION


@dataclass(frozen=True)
class Capacity:
    """What was measured of a form of a package when the model was packaged."""

    form: str
    texts_per_second: float  # of 32 clients, on all threads
    processor: str

    @classmethod
    def of(cls, package: Path, form: str = "") -> Self | None:
        """Read the capacity of a form, "" for the served one; None if the package is gone, or does not say."""
        try:
            said = json.loads((package / DESCRIPTION).read_bytes())
            name = form or said["served"]
            (speeds,) = (each["speeds"] for each in said["forms"] if each["name"] == name)
            return cls(name, float(speeds["many_clients"]["rows_per_second"]), said["machine"]["processor"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def compared(new: Capacity | None, new_name: str, old: Capacity | None, old_name: str) -> str:
    """Say in a sentence how the capacity changes from an old model to a new one; "" if one of them is unknown."""
    if new is None or old is None or not old.texts_per_second:
        return ""
    times = f"{new.texts_per_second / old.texts_per_second:.2f} times as many texts per second as"
    figures = [f"{each.texts_per_second:,.0f}" for each in (new, old)]
    where = f"{figures[0]} and {figures[1]} on {new.processor}"
    if new.processor != old.processor:
        where = f"{figures[0]} on {new.processor}, {figures[1]} on {old.processor}"
    return (
        f"With 32 clients, {new_name} ({new.form}) answers {times} {old_name} ({old.form}): {where}, where they were "
        "packaged."
    )
