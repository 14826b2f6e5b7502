"""What a person writes for `make tune` is checked before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.launching.launch import ROOT


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("{}", ["--budget", "3 weeks"], "search.minutes = '3 weeks': input should be a valid number"),
        ("space: {training.epoch: [1]}", [], "there is no field 'training.epoch'"),
        ("spaces: {}", [], "unknown key search.spaces, did you mean space?"),
        ("space: {training.epochs: [0]}", [], "training.epochs = 0: input should be greater than 0"),
    ],
)
def test_a_wrong_budget_or_file_is_refused(tmp_path: Path, text: str, options: list[str], message: str) -> None:
    (tmp_path / "space.yaml").write_text(text, encoding="utf-8")
    command = [sys.executable, "scripts/tune.py", "--search", str(tmp_path / "space.yaml"), *options]
    environment = {**os.environ, "PYTHONPATH": ".", "SPARK_BERT_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (tmp_path / "home").exists()
