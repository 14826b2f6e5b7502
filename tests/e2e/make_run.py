"""`make run` without its set-up, on a slice of the bundled corpus."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SLICE = (
    "preprocessing.sample=0.1", "preprocessing.max_length=32",
    "training.epochs=1", "training.evaluations=1", "gate.accuracy=0.6",
)  # fmt: skip


def sets(*overrides: str) -> list[str]:
    """The arguments that change fields of the experiment."""
    return [argument for override in overrides for argument in ("--set", override)]


def command(*overrides: str) -> list[str]:
    """The command line behind `make run`."""
    return [str(ROOT / "scripts/airflow.sh"), "python", str(ROOT / "scripts/run.py"), *sets(*overrides)]


def make_run(home: Path, *overrides: str, experiment: str = "", **environment: str) -> tuple[int, str]:
    """`make run` without its set-up: exit code and what it printed."""
    named = ["--experiment", experiment] if experiment else []
    done = subprocess.run(
        [*command(*overrides), *named], env=os.environ | {"SPARK_BERT_HOME": str(home)} | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout
