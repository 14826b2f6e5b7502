"""Scratch folders are removed if their process has ended; those of running processes and other hosts stay."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from include import scratch
from include.scratch import kernel, scratch_folder, sweep

ROOT = Path(__file__).parents[2]
OWNER = """
import sys
from pathlib import Path
from include.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1]), ".k1") as folder:
    (folder / "half").write_text("ha")
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextmanager
def owner(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start a process with a scratch folder below parent. The process ends when its standard input is closed."""
    command = [sys.executable, "-c", OWNER, str(parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_a_scratch_folder_goes_with_its_owner(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, folder):
        assert (folder / "half").exists()
        process.communicate()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_owner_is_swept_by_the_next_and_that_of_a_living_one_stays(tmp_path: Path) -> None:
    with owner(tmp_path) as (_, living), owner(tmp_path) as (process, dead):
        process.kill()
        process.wait()
        assert dead.exists()
        with scratch_folder(tmp_path, ".k2") as mine:
            assert set(tmp_path.iterdir()) == {living, mine}
            sweep(tmp_path)
            assert set(tmp_path.iterdir()) == {living, mine}
        assert (living / "half").read_text() == "ha"


def test_what_another_kernel_made_is_let_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with owner(tmp_path) as (process, dead):
        process.kill()
        process.wait()
    monkeypatch.setattr(scratch, "kernel", lambda: "0" * 12)
    sweep(tmp_path)
    monkeypatch.setattr(scratch, "kernel", lambda: "")
    sweep(tmp_path)
    assert dead.exists()


def test_a_link_in_a_folders_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / f"link-{kernel()}").symlink_to(tmp_path / "kept")
    sweep(tmp_path)
    assert (tmp_path / "kept" / "file").exists()
