"""The trigger behind the asset of labelled data: it fires when the files of a drop folder have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from include.datasets import is_finished

#: What is there: name, size and time of every file.
_Listing = frozenset[tuple[str, int, int]]


class DropFolderTrigger(BaseEventTrigger):
    """Fires once the folder's files differ from those at the last event, and have stayed the same for a while.

    A triggerer that starts anew has forgotten the last event and fires once for what is there; the run that follows
    knows files by their content and finds nothing new.

    Args:
        folder: its absolute path; it need not exist yet.
        settle: seconds for which nothing may change before it fires, so that a copy can end.
        interval: seconds between two looks.
    """

    def __init__(self, folder: str, settle: float = 10, interval: float = 5) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.folder, self.settle, self.interval = folder, settle, interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """How the triggerer makes it again."""
        cls = type(self)
        keywords = {"folder": self.folder, "settle": self.settle, "interval": self.interval}
        return f"{cls.__module__}.{cls.__qualname__}", keywords

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """An event for each change that has come to rest; it names the folder and the files."""
        told, seen, rest = _Listing(), _Listing(), 0.0
        while True:
            now = await asyncio.to_thread(_look, Path(self.folder))
            rest = rest + self.interval if now == seen else 0.0
            seen = now
            if now - told and rest >= self.settle:
                told = now
                files = sorted(name for name, _, _ in now)
                yield TriggerEvent({"folder": self.folder, "files": files})  # type: ignore[no-untyped-call]
            await asyncio.sleep(self.interval)


def _look(folder: Path) -> _Listing:
    """The finished files of the folder; none where it cannot be read, which the next look may change."""
    try:
        found = [(file.name, file.stat()) for file in folder.iterdir() if is_finished(file)]
    except OSError:
        return _Listing()
    return frozenset((name, status.st_size, status.st_mtime_ns) for name, status in found)
