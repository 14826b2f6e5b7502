"""The drop folder's trigger: when it fires, and what it takes no notice of."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

from spark_bert.retrain.drop_folder import ACKNOWLEDGED, DropFolderTrigger, acknowledge_event

LOOK = 0.02


async def _next(events: AsyncIterator[TriggerEvent], looks: int = 50) -> Any:
    """The next event's files; None when none comes in so many looks."""
    waiting = asyncio.ensure_future(anext(events))
    done, _ = await asyncio.wait([waiting], timeout=looks * LOOK)
    if not done:
        return None  # the iterator goes on waiting; nobody may ask it again
    return waiting.result().payload["files"]


def watch(folder: Path) -> AsyncIterator[TriggerEvent]:
    return DropFolderTrigger(str(folder), settle=3 * LOOK, interval=LOOK).run()


def test_it_fires_for_what_is_there_and_for_every_change_that_has_come_to_rest(tmp_path: Path) -> None:
    async def story() -> None:
        events = watch(tmp_path)
        (tmp_path / "a.tsv").write_text("one")
        assert await _next(events) == ["a.tsv"]
        (tmp_path / "b.tsv").write_text("two")
        assert await _next(events) == ["a.tsv", "b.tsv"]
        (tmp_path / "a.tsv").write_text("replaced")
        assert await _next(events) == ["a.tsv", "b.tsv"]
        (tmp_path / "a.tsv").unlink()  # nothing has come
        assert await _next(events) is None

    asyncio.run(story())


@pytest.mark.parametrize("name", [".hidden.tsv", "half.tsv.part", "half.tmp"])
def test_it_takes_no_notice_of_unfinished_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("half")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.tsv").symlink_to(__file__)
    assert asyncio.run(_next(watch(tmp_path))) is None


def test_a_copy_that_goes_on_is_waited_for(tmp_path: Path) -> None:
    async def story() -> list[str]:
        file, events = tmp_path / "long.tsv", watch(tmp_path)
        coming = asyncio.ensure_future(_next(events, looks=200))
        for _ in range(20):
            with file.open("a") as stream:
                stream.write("more")
            await asyncio.sleep(LOOK)
            assert not coming.done()
        return list(await coming)

    assert asyncio.run(story()) == ["long.tsv"]


def test_a_folder_may_come_later(tmp_path: Path) -> None:
    async def story() -> list[str]:
        events = watch(tmp_path / "later")
        coming = asyncio.ensure_future(_next(events, looks=200))
        await asyncio.sleep(5 * LOOK)
        (tmp_path / "later").mkdir()
        (tmp_path / "later/a.tsv").write_text("one")
        return list(await coming)

    assert asyncio.run(story()) == ["a.tsv"]


class State:
    """The asset's state, as a trigger and a task reach it."""

    def __init__(self) -> None:
        self.value: Any = None

    async def aget(self, key: str) -> Any:
        assert key == ACKNOWLEDGED
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def set(self, key: str, value: Any) -> None:
        assert key == ACKNOWLEDGED
        self.value = value


def watch_with(state: State, folder: Path) -> AsyncIterator[TriggerEvent]:
    trigger = DropFolderTrigger(str(folder), settle=3 * LOOK, interval=LOOK, repeat=5 * LOOK)
    trigger.asset_state_store = state  # type: ignore[assignment]
    return trigger.run()


def begin_with(state: State, *payloads: Any) -> None:
    """Let a run begin with events, the newest first."""
    events = [SimpleNamespace(extra={"payload": payload}, timestamp=-age) for age, payload in enumerate(payloads)]
    context: Any = {"triggering_asset_events": {"labeled-data": events}, "asset_state_store": state}
    acknowledge_event(context)


def test_an_event_that_no_run_has_begun_with_is_repeated(tmp_path: Path) -> None:
    async def story() -> None:
        state = State()
        events = watch_with(state, tmp_path)
        (tmp_path / "a.tsv").write_text("one")
        lost, again = (await anext(events)).payload, (await anext(events)).payload  # the Dag is paused, say
        assert lost == again and lost["files"] == ["a.tsv"]
        begin_with(state, again, {})  # a producer's event has no payload of ours
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(20 * LOOK)
        assert not waiting.done()
        (tmp_path / "b.tsv").write_text("two")
        assert (await waiting).payload["files"] == ["a.tsv", "b.tsv"]

    asyncio.run(story())


def test_what_is_gone_meanwhile_is_not_told_of_again(tmp_path: Path) -> None:
    async def story() -> None:
        events = watch_with(State(), tmp_path)
        (tmp_path / "a.tsv").write_text("one")
        await anext(events)
        (tmp_path / "a.tsv").unlink()
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(20 * LOOK)
        assert not waiting.done()

    asyncio.run(story())


def test_a_triggerer_that_starts_anew_does_not_tell_again_what_a_run_has_begun_with(tmp_path: Path) -> None:
    async def story() -> None:
        state = State()
        (tmp_path / "a.tsv").write_text("one")
        begin_with(state, (await anext(watch_with(state, tmp_path))).payload)
        waiting = asyncio.ensure_future(anext(watch_with(state, tmp_path)))
        await asyncio.sleep(20 * LOOK)
        assert not waiting.done()
        (tmp_path / "b.tsv").write_text("two")
        assert (await waiting).payload["files"] == ["a.tsv", "b.tsv"]

    asyncio.run(story())


def test_a_state_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        state = State()
        state.value = ConnectionError("no API server")
        events = watch_with(state, tmp_path)
        (tmp_path / "a.tsv").write_text("one")
        assert (await anext(events)).payload == (await anext(events)).payload

    asyncio.run(story())


def test_the_triggerer_can_make_it_again() -> None:
    path, keywords = DropFolderTrigger("/data/drop").serialize()
    module, _, name = path.rpartition(".")
    again = getattr(importlib.import_module(module), name)(**keywords)
    assert again.serialize() == (path, keywords) and again.folder == "/data/drop"
