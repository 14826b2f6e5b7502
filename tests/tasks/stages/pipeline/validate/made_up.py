"""A small, sound data set in GLUE's layout, which the tests then damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from include.artifacts import Artifact
from include.experiment import Experiment
from include.runs import Run
from tasks.runner import run_stage

ROWS = {"train": 200, "dev": 40, "test": 40}


def write_sst2(root: Path) -> Path:
    """SST-2 files below root/glue; the folder of the task."""
    folder = root / "glue" / "SST-2"
    folder.mkdir(parents=True)
    for split in ("train", "dev"):
        rows = [f"{split} sentence {number}\t{number % 2}" for number in range(ROWS[split])]
        (folder / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows, ""]))
    rows = [f"{number}\ttest sentence {number}" for number in range(ROWS["test"])]
    (folder / "test.tsv").write_text("\n".join(["index\tsentence", *rows, ""]))
    return folder


def sst2(root: Path, engine: str = "auto", **validation: Any) -> Experiment:
    """The experiment on them."""
    data = {"task": "SST-2", "source": "glue", "path": str(root / "glue")}
    return Experiment.model_validate({"data": data, "validation": validation, "runtime": {"engine": engine}})


def append(file: Path, *rows: bytes) -> None:
    """Add lines to a file."""
    with file.open("ab") as stream:
        stream.writelines(row + b"\n" for row in rows)


def validate(root: Path, experiment: Experiment) -> Artifact:
    """Run the stage through the runner."""
    return run_stage("validate", experiment, Run(root / "work" / "runs" / "first"))


def rules(artifact: Artifact) -> dict[tuple[str, str], dict[str, Any]]:
    """(split, rule) to what validation.json says of it; of rules with one name the failed one."""
    found = json.loads((artifact.path / "validation.json").read_text())["rules"]
    return {(rule["split"], rule["rule"]): rule for rule in sorted(found, key=lambda rule: not rule["success"])}


def lines(file: Path) -> list[dict[str, Any]]:
    """The objects of a .jsonl file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
