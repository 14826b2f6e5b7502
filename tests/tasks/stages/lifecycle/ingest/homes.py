"""A home with a small data set in GLUE's layout and a drop folder beside it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from include.artifacts import Artifact
from include.datasets import Dataset
from include.experiment import Experiment
from include.runs import Run
from tasks.runner import run_stage
from tests.tasks.stages.pipeline.validate import made_up


class Home:
    """The home, and what people and the stage do in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "home"
        self.data = made_up.write_sst2(root)
        self.drop = root / "drop"
        self.drop.mkdir()

    def put(self, name: str, *rows: str, age: float = 60, header: str = "sentence\tlabel") -> Path:
        """Put a file into the drop folder that was written so many seconds ago."""
        file = self.drop / name
        file.write_text("\n".join([header, *rows, ""]))
        return aged(file, age)

    def run(self, name: str = "first") -> Run:
        return Run(self.folder / "runs" / name)

    def experiment(self, **dataset: Any) -> Experiment:
        data = {"task": "SST-2", "source": "glue", "path": str(self.root / "glue")}
        return Experiment.model_validate({"data": data, "dataset": {"drop": str(self.drop), **dataset}})

    def ingest(self, run: str = "first", **dataset: Any) -> Artifact:
        return run_stage("ingest", self.experiment(**dataset), self.run(run))

    def versions(self) -> list[str]:
        return Dataset(self.folder, "SST-2").versions()


def aged(file: Path, age: float = 60) -> Path:
    """The file, last written so many seconds ago."""
    os.utime(file, times=(time.time() - age,) * 2)
    return file


def table(version: Artifact, split: str = "train") -> list[str]:
    return (version.path / f"{split}.tsv").read_text().splitlines()


def record(version: Artifact) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((version.path / "version.json").read_text())
    return found
