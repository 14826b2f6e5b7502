"""Homes with ablated runs in them: real records and artifacts, made-up figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from include.artifacts import Artifact, Manifest, artifact_key, write_json
from include.experiment import Experiment
from include.named_experiments import load
from include.runs import Run
from include.stages import STAGES

TRAINING = {"rows_per_second": 100.0, "memory": 10**9, "seconds": 60.0, "steps": 50, "bytes": {"all": 10**8}}


def arm(
    home: Path,
    configuration: str,
    seed: int = 1,
    accuracy: float | None = 0.9,
    study: str = "SST-2",
    right: Sequence[bool] = (),
    **changes: Any,
) -> Run:
    """A run that was trained and evaluated, with its arm.json; changes are of it (run, finished) and of training.

    `right` says of which dev rows it predicts the label; without it, there are no predictions.
    """
    mark = {
        "study": study, "configuration": configuration, "task": "SST-2", "seed": seed,
        "run": changes.pop("run", f"ablation-{study}-{configuration}-{seed}"),
        "finished": changes.pop("finished", "2026-01-02T03:04:05+00:00"),
    }  # fmt: skip
    experiment = load("movies", [f"training.seed={seed}"])
    run = Run(home / "runs" / mark["run"])
    training = {**TRAINING, **changes}
    run.add(_commit(run, "train", experiment, {**training, "seconds": 999.0}, "training.json", training), experiment)
    result = {"accuracy": accuracy}
    interval = None if accuracy is None else [accuracy - 0.02, accuracy + 0.02]
    found = {"metric": "accuracy", "metrics": result, "interval": interval, "rows": 872}
    if right:
        found["metrics"] = result = {"accuracy": sum(right) / len(right)}
    run.add(_commit(run, "evaluate", experiment, {"metrics": result}, "metrics.json", found, right), experiment)
    write_json(run.folder / "arm.json", mark)
    return run


def _commit(
    run: Run,
    name: str,
    experiment: Experiment,
    result: dict[str, Any],
    file: str,
    summary: dict[str, Any],
    right: Sequence[bool] = (),
) -> Artifact:
    stage = STAGES[name]
    key = artifact_key(stage.version, {}, {}, run.folder.name + str(result))
    with run.store.writing(name, key) as folder:
        write_json(folder / file, summary)
        if right:
            import pyarrow as pa  # which Airflow's environment lacks
            import pyarrow.parquet as pq

            columns = {"row": range(len(right)), "label": [1] * len(right), "prediction": [int(each) for each in right]}
            pq.write_table(
                pa.table({key: list(values) for key, values in columns.items()}), folder / "predictions.parquet"
            )
        part = stage.part(experiment)
        return run.store.commit(folder, Manifest(name, key, stage.version, part, {}, "", "", result))
