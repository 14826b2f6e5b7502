"""Runs of the tests' own, as stages leave them: records, artifacts, curves, and work under way."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from include.artifacts import ArtifactStore, Manifest
from include.experiment import Experiment
from include.named_experiments import load
from include.runs import Run
from include.stages import ExitCode
from spark_bert.deployment.places import run_folder

#: What a browser must show and never run.
HOSTILE = "<img src=x onerror=alert(1)>'\"&{{7*7}}\u202e"
LINES = (
    {"step": 1, "epoch": 0.1, "loss": 0.7, "learning_rate": 1e-5, "rows_per_second": 40.0, "bytes_rest": 10},
    {"step": 2, "epoch": 0.2, "loss": 0.6, "learning_rate": 2e-5, "rows_per_second": 50.0, "bytes_rest": 10},
    {"step": 2, "epoch": 0.2, "dev_loss": 0.6, "accuracy": 0.8, "shares": {"negative": 0.5, HOSTILE: 0.5}},
)
ROWS = (
    {
        "row": 0,
        "text": "a fine film",
        "label": "positive",
        "prediction": "positive",
        "correct": True,
        "confidence": 0.9,
    },
    {"row": 1, "text": HOSTILE, "label": "negative", "prediction": "positive", "correct": False, "confidence": 0.8},
    {"row": 2, "text": "dull", "label": "negative", "prediction": "negative", "correct": True, "confidence": 0.7},
    {"row": 3, "text": "not dull", "label": "positive", "prediction": "negative", "correct": False, "confidence": 0.95},
)
METRICS = {"rows": 4, "metric": "accuracy", "metrics": {"accuracy": 0.5}, "confusion": [[1, 1], [1, 1]]}


def make_run(home: Path, dag_id: str, run_id: str, accuracy: float = 0.5, **overrides: Any) -> str:
    """Let a run of a Dag, or of the command line if the Dag is "", train and evaluate, and return its folder's name."""
    run = Run(run_folder(dag_id, run_id) if dag_id else home / "runs" / run_id)
    experiment = load("movies", [f"{name.replace('__', '.')}={value}" for name, value in overrides.items()])
    trained = {"metric": "accuracy", "best": accuracy, "rows_per_second": 45.0, "seconds": 9.0, "files": {}}
    commit(home, run, experiment, "train", trained, {"metrics.jsonl": lines(*LINES)})
    evaluated = {"metrics": {"accuracy": accuracy}, "files": {"report": "report.html"}}
    files = {"metrics.json": json.dumps(METRICS), "rows.jsonl": lines(*ROWS), "report.html": "<h1>"}
    commit(home, run, experiment, "evaluate", evaluated, files)
    if dag_id:
        change_record(run, dag_id=dag_id, run_id=run_id)
    return run.folder.name


def make_stages(
    home: Path,
    dag_id: str,
    run_id: str,
    at: float,
    results: dict[str, dict[str, Any]],
    files: dict[str, str] | None = None,
    refusal: str = "",
) -> str:
    """Let stages of a run of a Dag have ended one after the other, and return the name of the run's folder.

    Args:
        home: the home.
        dag_id: the Dag.
        run_id: the run.
        at: when the first stage ended, in seconds since 1970. Each further one ends 10 seconds later.
        results: the result of each stage.
        files: the files that each of them makes.
        refusal: what the last one ends with; "" if it does not refuse.
    """
    run = Run(run_folder(dag_id, run_id))
    last = list(results)[-1]
    for stage, result in results.items():
        commit(home, run, load("movies"), stage, result, files or {}, refusal if stage == last else "")
    stages = run.record()["stages"]
    for number, entry in enumerate(stages.values()):
        entry["started"] = entry["ended"] = at + 10 * number
    change_record(run, dag_id=dag_id, run_id=run_id, stages=stages)
    return run.folder.name


def commit(
    home: Path,
    run: Run,
    experiment: Experiment,
    stage: str,
    result: dict[str, Any],
    files: dict[str, str],
    refusal: str = "",
) -> None:
    """Let a run have an artifact of a stage with these files; with a refusal, the stage has ended with it."""
    key = f"{abs(hash((run.folder.name, stage))):016x}"[:16]
    store = ArtifactStore(home)
    with store.writing(stage, key) as folder:
        for name, text in files.items():
            (folder / name).write_text(text)
        code = ExitCode.GATE_FAILED if refusal else ExitCode.DONE
        manifest = Manifest(stage, key, 1, {}, {}, "", "", {"stage": stage, **result}, int(code), refusal)
        artifact = store.commit(folder, manifest)
    run.add(artifact, experiment)


def change_record(run: Run, **values: Any) -> None:
    """Change values of a run's record."""
    run.file.write_text(json.dumps(run.record() | values))


def let_train(home: Path, run: str, written: str, age: float = 0) -> Path:
    """Let a run be training, and return the file of its curves.

    Args:
        home: the home.
        run: the name of its folder.
        written: what the training has written into that file.
        age: for how long it has written nothing, in seconds.
    """
    work = {"stage": "train", "key": "0" * 16, "progress": "f" * 16, "since": time.time() - age, "planned_steps": 8}
    folder = home / "runs" / run / "at-work"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.json").write_text(json.dumps(work))
    curves = home / "checkpoints/train" / ("f" * 16) / "metrics.jsonl"
    curves.parent.mkdir(parents=True, exist_ok=True)
    curves.write_text(written)
    os.utime(curves, (time.time() - age,) * 2)
    return curves


def lines(*values: dict[str, Any]) -> str:
    """Return lines of JSON."""
    return "".join(json.dumps(value) + "\n" for value in values)
