from __future__ import annotations

import json
import logging
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from include.artifacts import MANIFEST, locked
from include.stages import Transient
from tasks.training.checkpoint import Checkpoints, Snapshot
from tasks.training.job import checkpoints

pytestmark = pytest.mark.usefixtures("horovod")

SAME = {"config": "c", "data": "d"}


@pytest.fixture
def written(tmp_path: Path) -> Checkpoints:
    """Checkpoints of the steps 10 and 20 in tmp_path/run, each with its step as weight."""
    best = tmp_path / "model"
    best.mkdir()
    (best / "config.json").write_text("{}")
    all_of_them = Checkpoints(tmp_path / "run", 10, rank=0, best=best)
    for step in (10, 20):
        all_of_them.write(step, snapshot(step))
    return all_of_them


def snapshot(step: int) -> Snapshot:
    weights = {"weight": torch.full((1000,), float(step)), "part": torch.ones(4, 4)[:, 1]}
    return Snapshot(weights, {"random": torch.arange(step)}, {**SAME, "step": step})


def test_what_was_written_comes_back(written: Checkpoints, tmp_path: Path) -> None:
    assert written.newest(SAME) == 20
    cpu = torch.device("cpu")
    assert written.shared(20, cpu)["weight"].tolist() == [20.0] * 1000
    assert written.own(20, 0, cpu)["random"].tolist() == list(range(20))
    assert written.values(20) == {**SAME, "step": 20}
    (tmp_path / "model" / "config.json").write_text("later")
    written.restore_best(20)
    assert (tmp_path / "model" / "config.json").read_text() == "{}"


def test_the_last_two_are_kept_and_nothing_else(written: Checkpoints, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "model")
    written.write(30, snapshot(30))
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["step-20", "step-30"]
    (tmp_path / "model").mkdir()
    written.restore_best(30)
    assert not (tmp_path / "model").exists()


def test_when_they_are_due() -> None:
    assert [step for step in range(1, 31) if Checkpoints(Path(), 10, 0, Path()).due(step)] == [10, 20, 30]
    assert not any(Checkpoints(Path(), 0, 0, Path()).due(step) for step in range(1, 31))


def flip(file: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def spoil_header(file: Path) -> None:
    file.write_bytes(b"\xff" * 8 + file.read_bytes()[8:])


@pytest.mark.parametrize("damage", [flip, cut, spoil_header, Path.unlink])
@pytest.mark.parametrize("name", ["shared.safetensors", "rank-0.safetensors", "values.json", "best/config.json"])
def test_a_damaged_one_is_noticed_and_the_one_before_is_used(
    written: Checkpoints, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: Callable[[Path], None]
) -> None:
    damage(tmp_path / "run" / "step-20" / name)
    with caplog.at_level(logging.WARNING):
        assert written.newest(SAME) == 10
    assert (
        f"step-20 is not used and was renamed to unusable-step-20: {tmp_path}/run/step-20/{name} is missing or damaged"
        in caplog.text
    )
    assert list(checkpoints(tmp_path / "run")) == [10]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"files": {}}', '{"files": {"values.json": 1}}', None])
def test_so_is_one_without_a_whole_manifest(written: Checkpoints, tmp_path: Path, content: str | None) -> None:
    manifest = tmp_path / "run" / "step-20" / MANIFEST
    if content is None:
        manifest.unlink()
    else:
        manifest.write_text(content)
    assert written.newest(SAME) == 10


def test_with_all_damaged_there_is_none(written: Checkpoints, tmp_path: Path) -> None:
    for folder in checkpoints(tmp_path / "run").values():
        flip(folder / "shared.safetensors")
    assert written.newest(SAME) == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"unusable-step-10", "unusable-step-20"}


def test_one_of_another_experiment_is_not_used(
    written: Checkpoints, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert written.newest({"config": "other", "data": "d"}) == 0
    assert "step-20 is not used and was renamed to unusable-step-20: it was written with another config" in caplog.text
    (tmp_path / "run" / "unusable-step-20").rename(tmp_path / "run" / "step-20")
    assert written.newest(SAME) == 20


def test_what_a_kill_has_left_half_written_is_never_read(written: Checkpoints, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "run" / "step-20", tmp_path / "run" / ".step-30")
    assert written.newest(SAME) == 20
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["step-10", "step-20"]


def test_without_room_the_one_before_remains_and_the_log_names_the_folder(
    written: Checkpoints, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, unlimited[1]))  # of a file's size: a real error of the system
    try:
        with caplog.at_level(logging.WARNING):
            written.write(30, snapshot(30))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert f"step 30 has no checkpoint in {tmp_path}/run: the training continues without it" in caplog.text
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["step-10", "step-20"]
    assert written.newest(SAME) == 20


def test_a_folder_that_another_process_works_in_is_refused(tmp_path: Path) -> None:
    in_use = pytest.raises(Transient, match=r"run is in use by process \d+ on .+: wait until")
    with locked(tmp_path / "run"), in_use, locked(tmp_path / "run"):
        pass
    with locked(tmp_path / "run"):  # free again
        pass


def test_the_manifest_lists_every_file(written: Checkpoints, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "step-20"
    listed = json.loads((folder / MANIFEST).read_text())["files"]
    assert {*listed, MANIFEST} == {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
