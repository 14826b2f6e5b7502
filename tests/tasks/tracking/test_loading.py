"""Loading by alias: every file is as it was registered, or named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from include.artifacts import Manifest, write_json
from include.runs import Run
from include.stages import BadInput
from tasks.tracking.loading import load, load_champion, load_package
from tasks.tracking.registry import Version
from tests.tasks.tracking.retrained import registry, retrain, version

pytestmark = pytest.mark.usefixtures("database")
REMEDY = "restore it from a backup, or run `make rollback`"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return retrain(tmp_path, "first")


def test_the_champion_is_the_training_that_was_registered(run: Run) -> None:
    found = load_champion(registry(run), run.store)
    assert found is not None and found[0].number == "1" and found[1] == run.artifact("train")


def test_a_changed_and_a_missing_file_are_named(run: Run) -> None:
    file = run.artifact("train").path / "model/config.json"
    file.write_text(file.read_text().replace("}", " "))
    with pytest.raises(BadInput, match=f"{file} of version 1 of .* is missing or damaged: {REMEDY}"):
        load_champion(registry(run), run.store)
    file.unlink()
    with pytest.raises(BadInput, match=f"{file} of version 1 of .* is missing or damaged: {REMEDY}"):
        load_champion(registry(run), run.store)


def test_a_training_that_was_made_again_is_another_model(run: Run) -> None:
    """Its own manifest fits its files, but not the registry's tag."""
    train = run.artifact("train")
    shutil.rmtree(train.path)
    with pytest.raises(BadInput, match=f"{train.path}/manifest.json of version 1 of .* is missing"):
        load(version(run, "1"), run.store)
    with run.store.writing("train", train.manifest.key) as folder:
        write_json(folder / "metrics.jsonl", {"step": 1})
        run.store.commit(folder, Manifest("train", train.manifest.key, 1, {}, {}, "", ""))
    with pytest.raises(BadInput, match=f"or differs from what was registered: {REMEDY}"):
        load(version(run, "1"), run.store)


def test_a_package_that_was_made_again_is_another_one(run: Run) -> None:
    registered, package = version(run, "1"), run.artifact("package")
    assert load_package(registered, run.store) == package
    manifest = package.path / "manifest.json"
    manifest.write_text(f"{manifest.read_text()} ")
    again = "if the model was packaged again, register and promote it again; otherwise restore it"
    with pytest.raises(BadInput, match=f"{manifest} of version 1 of .* differs from what was registered: {again}"):
        load_package(registered, run.store)


def test_a_changed_file_of_a_package_is_named_even_if_it_has_the_old_size_and_time(run: Run) -> None:
    file = run.artifact("package").path / "model/config.json"
    before = file.stat()
    file.write_text(file.read_text().replace("}", " "))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(BadInput, match=f"{file} of version 1 of .* is missing or damaged: {REMEDY}"):
        load_package(version(run, "1"), run.store)


def test_a_version_that_was_entered_by_hand_is_refused(run: Run) -> None:
    by_hand = Version("spark-bert-movie-reviews", "9", "", {})
    with pytest.raises(BadInput, match=r"version 9 of spark-bert-movie-reviews has no tag train\.key"):
        load(by_hand, run.store)
