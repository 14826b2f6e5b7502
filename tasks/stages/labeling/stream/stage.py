"""The stage stream: label rows as they arrive, each exactly once.

Spark's checkpoint in streams/NAME knows which rows belong to which batch; the folder of a batch appears with a single
rename. A process that is killed between the two finds the folder when Spark repeats the batch, and goes on.
"""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from include.artifacts import locked
from include.drift_windows import in_short
from include.experiment import Experiment
from include.runs import Run
from tasks.context import Context, Outcome


def plan(experiment: Experiment, run: Run) -> str:
    """Return a text that never comes again: more rows may have come since the stage ended in this run."""
    from tasks.stages.labeling.stream.source import check_source

    check_source(experiment.streaming, experiment.prediction.max_risk)
    return uuid.uuid4().hex


def run(context: Context, plan: str) -> Outcome:
    """Label what is there, or go on until the process is stopped. The result has the numbers of rows of this run."""
    from tasks.spark import session
    from tasks.stages.labeling.stream.heartbeat import Heartbeat
    from tasks.stages.labeling.stream.labeler import BatchLabeler, follow
    from tasks.stages.labeling.stream.source import Changes, open_source, remember
    from tasks.staging import staging

    experiment, streaming = context.experiment, context.experiment.streaming
    folder = context.run.store.root.parent / "streams" / streaming.name
    with locked(folder), Heartbeat(folder / "heartbeat.json") as heartbeat:
        remember(streaming, folder / "stream.json")
        changes = Changes(streaming, folder)
        with session(experiment, "stream") as spark, staging(spark) as staged:
            labeler = BatchLabeler(experiment, context.run, folder, heartbeat, staged)
            follow(spark, open_source(spark, streaming, folder), streaming, labeler, changes)
    return Outcome(_result(context.run.folder.name, folder) | {"changed": changes.names})


def _result(run: str, folder: Path) -> dict[str, Any]:
    from tasks.stages.labeling.stream.batches import Batches, closed

    batches = [manifest for manifest in Batches(folder).after(-1) if manifest["run"] == run]
    reasons: Counter[str] = sum((Counter(one["reasons"]) for one in batches), Counter())
    abstains = any("answered" in one for one in batches)
    windows = [window for window in closed(folder) if window["run"] == run]
    return {
        "stream": folder.name,
        "folder": str(folder),
        "batches": len(batches),
        **{name: sum(one[name] for one in batches) for name in ("rows_in", "rows", "aside")},
        **({"answered": sum(one.get("answered", one["rows"]) for one in batches)} if abstains else {}),
        "reasons": dict(reasons),
        "model_versions": sorted({one["model_version"] for one in batches}),
        "windows": len(windows),
        "drift": [in_short(window) for window in windows if window["reasons"]],
    }
