"""An ingest that was cut off, overtaken, or found its files changed: a version is taken whole and once, or not."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from include.artifacts import locked
from include.datasets import Dataset
from include.stages import BadInput, Transient
from tasks.stages.lifecycle.ingest import stage
from tasks.stages.lifecycle.ingest.version import Inputs, read_inputs
from tests.tasks.stages.lifecycle.ingest.homes import Home, table
from tests.tasks.stages.pipeline.validate import made_up

ROW = "a fine film\t1"


@pytest.mark.parametrize("recorded", [True, False])
def test_an_ingest_cut_off_before_its_version_was_accepted_goes_on(home: Home, recorded: bool) -> None:
    home.ingest()
    before = Dataset(home.folder, "SST-2").file.read_text()
    home.put("a.tsv", ROW)
    second = home.ingest("second")
    Dataset(home.folder, "SST-2").file.write_text(before)
    if not recorded:
        home.run("second").file.unlink()
    again = home.ingest("second")
    assert again.path == second.path and again.manifest.result == second.manifest.result
    assert home.versions()[0] == second.manifest.key


def test_a_retry_after_the_end_says_again_what_was_new(home: Home) -> None:
    home.put("a.tsv", ROW)
    first = home.ingest()
    assert home.ingest().manifest.result == first.manifest.result and len(home.versions()) == 1
    assert not home.ingest("another").manifest.result["new"]
    assert not home.ingest(drift_rows=7).manifest.result["new"]


def test_two_at_once_make_one_version(home: Home) -> None:
    home.ingest()
    home.put("a.tsv", ROW)

    def attempt(name: str) -> str:
        for _ in range(100):
            with suppress(Transient):  # another one is just being accepted
                return home.ingest(name).manifest.key
            time.sleep(0.05)
        raise AssertionError(f"{name} was never let in")

    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(attempt, ["one", "two", "three", "four"]))
    assert found == {home.versions()[0]} and len(home.versions()) == 2


def test_while_another_is_accepted_a_version_waits(home: Home) -> None:
    with locked(home.folder / "datasets/SST-2"), pytest.raises(Transient, match="is in use by process"):
        home.ingest()
    assert home.versions() == []
    assert home.ingest().manifest.result["new"] and len(home.versions()) == 1


def changing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Change something after the plan was made, and before what it names is read."""

    def read(*arguments: Any) -> Inputs:
        change()
        return read_inputs(*arguments)

    monkeypatch.setattr(stage, "read_inputs", read)


@pytest.mark.parametrize("text", ["a worse film\t0", "no label", None])
def test_a_file_that_changes_while_it_is_read_is_not_taken(
    home: Home, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    home.ingest()
    file = home.put("a.tsv", ROW)

    def change() -> None:
        times = file.stat().st_atime_ns, file.stat().st_mtime_ns
        file.unlink()
        if text is not None:
            home.put("a.tsv", text)
            os.utime(file, ns=times)

    changing(monkeypatch, change)
    with pytest.raises(Transient, match=r"a\.tsv was changed while it was read, so nothing was kept: run"):
        home.ingest("second")
    assert len(home.versions()) == 1 and not (home.drop / "refused").exists()


@pytest.mark.parametrize("name", ["a.tsv", "a.parquet"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_pipe_that_takes_the_place_of_a_file_is_not_opened(
    home: Home, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    home.ingest()
    file, secret = home.put(name, ROW), home.root / "secret"
    secret.write_text("secret\tno label\n")

    def change() -> None:
        file.unlink()
        file.symlink_to(secret) if kind == "link" else os.mkfifo(file)

    changing(monkeypatch, change)
    with pytest.raises(Transient):
        home.ingest("second")
    assert not any(b"secret" in each.read_bytes() for each in home.folder.rglob("*") if each.is_file())


def test_the_experiments_own_data_must_not_change_either(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    changing(monkeypatch, lambda: made_up.append(home.data / "dev.tsv", b"one more\t1"))
    with pytest.raises(Transient, match=r"dev\.tsv was changed while it was read"):
        home.ingest()
    assert home.versions() == []


def test_later_versions_need_the_original_data_no_more(home: Home) -> None:
    home.ingest()
    shutil.rmtree(home.data.parent)
    home.put("a.tsv", ROW)
    assert table(home.ingest("second"))[-1] == ROW


def test_a_lost_or_damaged_last_version_is_named(home: Home) -> None:
    first = home.ingest()
    shutil.rmtree(first.path)
    with pytest.raises(
        BadInput, match=rf"{first.manifest.key}, the last version of the dataset, is missing: restore it"
    ):
        home.ingest("second")
    Dataset(home.folder, "SST-2").file.write_text(json.dumps({"version": 1}))
    with pytest.raises(BadInput, match=r"versions\.json is damaged: write it again"):
        home.ingest("second")
