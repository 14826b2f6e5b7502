"""The trigger behind the asset of labelled data: it fires when the files of a drop folder have changed.

Airflow drops an asset's event while the Dag is paused, and tells the trigger nothing of it. So the first task of a run
writes into the asset's state which event it has begun with, and the trigger repeats one that no run has begun with.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.sdk import Context
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from include.datasets import is_finished

#: The key of the asset's state that holds the event which a run has begun with last.
BEGUN = "drop-folder"
#: What is there: name, size and time of every file.
_Listing = frozenset[tuple[str, int, int]]


def begun(context: Context) -> None:
    """Tell the trigger that a run has begun with its event, if one has started the run: a task's on_execute_callback.

    The task needs the asset as its inlet.
    """
    events = [event for events in context["triggering_asset_events"].values() for event in events]
    for event in sorted(events, key=lambda event: event.timestamp):
        change = event.extra.get("payload", {}).get("change")
        if change:  # events of other producers have none
            context["asset_state_store"].set(BEGUN, change)


class DropFolderTrigger(BaseEventTrigger):
    """Fires once the folder's files differ from those at the last event, and have stayed the same for a while.

    It fires again as long as no run has begun with the event. A triggerer that starts anew fires for what is there,
    unless a run has begun with just that.

    Args:
        folder: its absolute path; it need not exist yet.
        settle: seconds for which nothing may change before it fires, so that a copy can end.
        interval: seconds between two looks.
        repeat: seconds after which an event is repeated.
    """

    def __init__(self, folder: str, settle: float = 10, interval: float = 5, repeat: float = 300) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.folder, self.settle, self.interval, self.repeat = folder, settle, interval, repeat

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """How the triggerer makes it again."""
        cls = type(self)
        names = ("folder", "settle", "interval", "repeat")
        keywords = {name: getattr(self, name) for name in names}
        return f"{cls.__module__}.{cls.__qualname__}", keywords

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """An event for each change that has come to rest; it names the folder, the files and the change."""
        told, seen, rest, waited, waiting = _Listing(), _Listing(), 0.0, 0.0, False
        while True:
            now = await asyncio.to_thread(_look, Path(self.folder))
            rest = rest + self.interval if now == seen else 0.0
            waited += self.interval
            seen, new = now, bool(now - told)
            if rest >= self.settle and (new or (waiting and waited >= self.repeat)):
                told, waited = now if new else told, 0.0
                waiting = bool(now) and await self._begun() != _digest(told)
                if waiting:
                    files = sorted(name for name, _, _ in now)
                    event = {"folder": self.folder, "files": files, "change": _digest(told)}
                    yield TriggerEvent(event)  # type: ignore[no-untyped-call]
            await asyncio.sleep(self.interval)

    async def _begun(self) -> Any:
        """The event that a run has begun with last; None where that cannot be known."""
        if self.asset_state_store is None:
            return None
        try:
            return await self.asset_state_store.aget(BEGUN)
        except Exception as error:  # a trigger that fails is gone; an event too many does no harm
            self.log.warning("cannot read which event a run has begun with, so it is repeated: %s", error)
            return None


def _digest(listing: _Listing) -> str:
    return hashlib.sha256(repr(sorted(listing)).encode()).hexdigest()[:16]


def _look(folder: Path) -> _Listing:
    """The finished files of the folder; none where it cannot be read, which the next look may change."""
    try:
        found = [(file.name, file.stat()) for file in folder.iterdir() if is_finished(file)]
    except OSError:
        return _Listing()
    return frozenset((name, status.st_size, status.st_mtime_ns) for name, status in found)
