"""Homes with runs in them: real records and artifacts, made-up figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from include.artifacts import Manifest, artifact_key
from include.named_experiments import load
from include.runs import Run
from include.stages import PIPELINE, STAGES, ExitCode
from tasks.inference.packaged_backends import USES

STEPS = [
    {"step": 1, "epoch": 0.5, "loss": 0.7, "rows_per_second": 90.0, "grad_norm": None},
    {"step": 2, "epoch": 1.0, "time": 1700000000.123, "loss": 0.4, "rows_per_second": 110.0, "grad_norm": 1.5},
    {"step": 2, "epoch": 1.0, "accuracy": 0.8, "dev_loss": 0.5, "shares": {"positive": 1.0}},
]
FORM = {
    "name": "torch-fp32", "engine": "torch", "precision": "fp32", "file": "model", "offered": True,
    "speeds": {use: {"rows_per_second": 90.0, "times_torch": 1.0} for uses in USES.values() for use in uses},
}  # fmt: skip
PACKAGE = {"served": FORM["name"], "machine": {"processor": "EPYC"}, "forms": [FORM]}
RESULTS: dict[str, dict[str, Any]] = {
    "train": {"rows_per_second": 100.0, "memory": 10**9, "seconds": 60.0, "steps": 2, "device": "cpu"},
    "gate": {"checks": [{"key": "gate.accuracy", "threshold": 0.75, "value": 0.8}]},
    "package": {"served": FORM["name"], "predicts": FORM["name"], "forms": [FORM]},
    "evaluate": {"metrics": {"accuracy": 0.8, "matthews": None}, "rows": 872, "seconds": 3.0},
}


def made(home: Path, name: str, last: str = "export", passed: bool = True, **changes: Any) -> Run:
    """A run that went down to the stage, or to a failed gate; changes are fields of its experiment (section__field)."""
    experiment = load("movies", [f"{key.replace('__', '.')}={value}" for key, value in changes.items()])
    run = Run(home / "runs" / name)
    for stage in PIPELINE[: PIPELINE.index(last) + 1]:
        failed = stage == "gate" and not passed
        part = STAGES[stage].part(experiment)
        key = artifact_key(1, part, {}, f"{experiment.training.seed} {failed}")
        with run.store.writing(stage, key) as folder:
            if stage == "train":
                _write_model(folder / "model", experiment.training.seed)
                (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in STEPS))
            if stage == "package":
                _write_model(folder / "model", experiment.training.seed)
                (folder / "package.json").write_text(json.dumps(PACKAGE))
                (folder / "MLmodel").write_text(f"flavors: {{}}  # {experiment.training.seed}\n")
            code, message = (ExitCode.GATE_FAILED, "accuracy 0.8 is below 0.85") if failed else (ExitCode.DONE, "")
            manifest = Manifest(
                stage, key, 1, part, {}, "5eed", "a1b2c3", RESULTS.get(stage, {}), exit_code=int(code), message=message
            )
            run.add(run.store.commit(folder, manifest), experiment)
        if failed:
            break
    return run


def _write_model(folder: Path, seed: int) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"seed": seed}))
