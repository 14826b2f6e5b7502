"""Horovod takes minutes to compile, so a training that has only one rank must not need it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from include.stages import BadInput
from tasks.launching.launch import ROOT, launch
from tests.tasks.launching.jobs import losses, make_job

#: Where Horovod cannot be imported, train as job.json in the folder says, but write into the folder itself.
WITHOUT = """
import dataclasses, pathlib, sys
sys.modules["horovod"] = None
from tasks.launching.launch import launch
from tasks.training.job import Job
folder = pathlib.Path(sys.argv[1])
launch(dataclasses.replace(Job.read(folder / "job.json"), output=folder))
"""


def test_one_rank_trains_as_it_does_with_horovod_installed(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    launch(job)
    without = tmp_path / "without"
    without.mkdir()
    job.write(without / "job.json")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", WITHOUT, str(without)], check=True, env=environment)
    assert losses(without) == losses(job.output)
    assert "horovod" not in json.loads((without / "training.json").read_text())


@pytest.mark.parametrize(
    ("ranks", "communication"), [(2, {}), (1, {"strategy": "parameter-server", "compression": "none"})]
)
def test_what_needs_horovod_says_how_to_install_it(
    ranks: int, communication: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "horovod", None)
    with pytest.raises(BadInput, match=r"needs Horovod, which is not installed: run `make setup`, or write"):
        launch(make_job(tmp_path, communication or None, ranks=ranks))
