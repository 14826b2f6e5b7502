"""Handing folders over to the stages' user: just those that a stage writes into, and none by way of a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from include.named_experiments import load
from include.stages import BadInput
from spark_bert.deployment.containers import user
from spark_bert.deployment.places import run_folder
from spark_bert.operators.docker_containers import host_config

pytestmark = pytest.mark.usefixtures("home")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give folders away")


def walled(stage: str) -> None:
    host_config(stage, load("movies"), run_folder("finetune", "manual__1"))


def owner(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid


@as_root
def test_a_stage_goes_on_where_root_has_run_stages_as_processes(home: Path) -> None:
    run = run_folder("finetune", "manual__1")
    folders = [home / name for name in ("artifacts/ingest", "checkpoints/ingest", "datasets/movie-reviews")]
    for folder in (*folders, run):
        folder.mkdir(parents=True)
    walled("ingest")
    given = [*folders, run, home / "artifacts", home / "checkpoints", home / "datasets"]
    assert {owner(folder) for folder in given} == {user()}
    assert owner(home) == owner(home / "runs") == (0, 0)  # no stage writes there


@as_root
def test_a_stream_goes_on_where_root_has_run_it_as_a_process(home: Path) -> None:
    (home / "streams/stream/batches").mkdir(parents=True)
    walled("stream")
    assert owner(home / "streams") == owner(home / "streams/stream") == user()
    assert owner(home / "streams/stream/batches") == (0, 0)


@as_root
def test_what_lies_in_the_folders_is_not_looked_at(home: Path) -> None:
    """Another stage commits or removes it at that very moment, or puts a link in its place."""
    work = home / "artifacts/evaluate/.0123456789abcdef-x"
    work.mkdir(parents=True)
    (work / "report.html").touch()
    (home / "artifacts/train").mkdir()
    walled("evaluate")
    assert {owner(path) for path in (work, work / "report.html", home / "artifacts/train")} == {(0, 0)}


@pytest.mark.parametrize("place", ["artifacts", "checkpoints", "runs", "runs/{run}"])
@pytest.mark.parametrize("target", ["secrets", "nothing"])
def test_a_link_in_a_folders_place_is_refused(place: str, target: str, home: Path) -> None:
    refused(home / place.format(run=run_folder("finetune", "manual__1").name), target, home)


@as_root
@pytest.mark.parametrize("place", ["artifacts/train", "checkpoints/train"])
def test_a_link_that_a_stage_has_made_gives_it_nothing_of_roots(place: str, home: Path) -> None:
    refused(home / place, "secrets", home)


def refused(link: Path, target: str, home: Path) -> None:
    secrets = home.parent / "secrets"
    secrets.mkdir()
    before = owner(secrets)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(home.parent / target)
    with pytest.raises(BadInput, match="is a symbolic link or a file, or lies below one"):
        walled("train")
    assert owner(secrets) == before and not list(secrets.iterdir())


def test_a_file_in_a_folders_place_is_refused(home: Path) -> None:
    home.mkdir()
    (home / "checkpoints").touch()
    with pytest.raises(BadInput, match=f"{home}/checkpoints is a symbolic link or a file"):
        walled("train")


def test_the_home_itself_may_be_a_link(home: Path) -> None:
    (home.parent / "disk").mkdir()
    home.symlink_to(home.parent / "disk")
    walled("train")
    assert (home.parent / "disk/artifacts").is_dir()
