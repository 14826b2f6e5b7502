"""Compare the append-only list of configurations with its history in git."""

from __future__ import annotations

import subprocess
from pathlib import Path

from include.ablations import Configuration, parse


def broken_promises(file: Path) -> list[str]:
    """Return one line per difference between the file and an earlier revision of it, the oldest revision first."""
    now = list(parse(file.read_text()).values())
    found = []
    for revision in _git(file, "log", "--reverse", "--format=%h", "--", file.name).split():
        then = list(parse(_git(file, "show", f"{revision}:./{file.name}")).values())
        found += [f"{revision}: {line}" for line in _differences(then, now)]
    return found


def _differences(then: list[Configuration], now: list[Configuration]) -> list[str]:
    found = []
    for index, old in enumerate(then):
        new = now[index] if index < len(now) else None
        if new is None or new.id != old.id:
            found.append(f"number {index} was {old.id} and is {new.id if new else 'gone'}")
        elif new.changes != old.changes:
            found.append(f"{old.id} changed {old.changes} and changes {new.changes}")
    return found


def _git(file: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(file.parent), *arguments], capture_output=True, text=True, check=True)
    return done.stdout
