"""The trigger behind the assets `labeled-data` and `incoming-rows`: it fires when the files of a folder have changed.

Airflow discards events while the Dag is paused. Therefore the trigger repeats its event until the first Airflow task of
a run has acknowledged it in the asset's state store.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

from airflow.sdk import Asset, AssetWatcher, Context
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from include.datasets import is_finished
from include.folders import Dropped
from spark_bert.deployment.places import data_path

#: The key in the asset's state store of the digest of the event that a run has acknowledged last.
ACKNOWLEDGED = "drop-folder"
#: The seconds without any change after which files count as complete, unless a run waits longer.
_SETTLE = 10.0
_NAMED = 100  # files in an event, which is a row of Airflow's database
_Listing = frozenset[tuple[str, int, int]]  # name, size in bytes and modification time in nanoseconds of every file


def arriving_files(name: str, folder: str, settle: float = 0) -> Asset:
    """Return an asset that producers update, and new files in a folder, unless its name is "".

    `settle` is the number of seconds for which a file must not have changed before a run reads it.
    """
    trigger = DropFolderTrigger(folder=str(data_path(folder)), settle=max(settle, _SETTLE))
    watchers = [AssetWatcher(name="drop-folder", trigger=trigger)] if folder else []
    return Asset(name, uri=f"spark-bert://{name}", watchers=watchers)


def acknowledge_event(context: Context) -> None:
    """Record the event that has started the run: an on_execute_callback of a task that has the asset as an inlet."""
    events = [event for events in context["triggering_asset_events"].values() for event in events]
    for event in sorted(events, key=lambda event: event.timestamp):
        change = event.extra.get("payload", {}).get("change")
        if change:  # events of other producers have no such key
            context["asset_state_store"].set(ACKNOWLEDGED, change)


class DropFolderTrigger(BaseEventTrigger):
    """Fires when files were added to the folder or changed, and have not changed for `settle` seconds.

    After a restart of the triggerer, it fires for the files in the folder unless a run has acknowledged exactly these.
    """

    def __init__(self, folder: str, settle: float = _SETTLE, interval: float = 5, repeat: float = 300) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.folder, self.settle, self.interval, self.repeat = folder, settle, interval, repeat

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer creates the trigger."""
        keywords = {name: getattr(self, name) for name in ("folder", "settle", "interval", "repeat")}
        return f"{__name__}.{type(self).__qualname__}", keywords

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event per completed change, with the folder, names of its files and a digest of the change."""
        reported, previous = _Listing(), _Listing()
        unchanged_for = since_event = 0.0  # seconds
        unacknowledged = False
        while True:
            current = await asyncio.to_thread(_list, Dropped(self.folder))
            unchanged_for = unchanged_for + self.interval if current == previous else 0.0
            since_event += self.interval
            # Removed files are no reason to fire, so only what is new in the listing counts.
            previous, new = current, bool(current - reported)
            if unchanged_for >= self.settle and (new or (unacknowledged and since_event >= self.repeat)):
                reported, since_event = current if new else reported, 0.0
                unacknowledged = bool(current) and await self._acknowledged() != _digest(reported)
                if unacknowledged:
                    files = sorted(name for name, _, _ in current)
                    event = {"folder": self.folder, "files": files[:_NAMED], "change": _digest(reported)}
                    yield TriggerEvent(event)  # type: ignore[no-untyped-call]
            await asyncio.sleep(self.interval)

    async def _acknowledged(self) -> Any:
        if self.asset_state_store is None:
            return None
        try:
            return await self.asset_state_store.aget(ACKNOWLEDGED)
        except Exception as error:  # Airflow does not restart a failed trigger, while a repeated event does no harm
            self.log.warning("repeating the event, because the last acknowledged event cannot be read: %s", error)
            return None


def _digest(listing: _Listing) -> str:
    return hashlib.sha256(repr(sorted(listing)).encode()).hexdigest()[:16]


def _list(folder: Dropped) -> _Listing:
    """List the finished files. A folder that cannot be read counts as empty, because a later listing may succeed."""
    try:
        found = [(file.name, file.stat()) for file in folder.iterdir() if is_finished(file)]
    except OSError:
        return _Listing()
    return frozenset((name, status.st_size, status.st_mtime_ns) for name, status in found)
