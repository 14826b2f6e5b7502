"""The finished runs that a leaderboard compares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from include.experiment import Experiment
from include.glue import GENERIC, Task
from include.runs import ARM, Run
from include.stages import BadInput, flatten

#: The stages whose settings the model depends on; those of validate, which has the data, are part of its key.
_MAKERS = ("preprocess", "pretrain", "train")
_DEFAULTS = flatten(Experiment().model_dump(mode="json"))


@dataclass(frozen=True)
class Entry:
    """A trained and evaluated run.

    Attributes:
        model: The name or folder of the encoder, the same and "frozen", "tfidf" or "textcnn".
        settings: The other fields that the model depends on, if they differ from their defaults, by "section.field".
        validated: When the data were first validated, in seconds since 1970.
        size: The size of the model in bytes.
        rows_per_second: The rows per second that predict has labeled; None if it has not run.
    """

    run: str
    task: Task
    model: str
    seed: int
    settings: dict[str, Any]
    data: str
    validated: float
    keys: dict[str, str]
    predictions: Path
    summary: dict[str, Any]
    training: dict[str, Any]
    size: int
    rows_per_second: float | None


def find(runs: Path) -> tuple[list[Entry], list[str]]:
    """Return the evaluated runs of registered tasks, except the arms of ablations, and a line per run that is left out.

    Of runs of the same model and seed, one whose predict has run counts, else the last by name; of a task, only runs on
    the newest data.
    """
    found: dict[str, Entry] = {}
    warnings: list[str] = []
    for file in sorted(runs.glob("*/run.json")):
        try:
            for entry in _read(Run(file.parent)):
                same = json.dumps([entry.task.name, entry.model, entry.seed, entry.settings, entry.data])
                if same not in found or entry.rows_per_second or not found[same].rows_per_second:
                    found[same] = entry
        except (BadInput, OSError, ValueError, KeyError) as error:
            warnings.append(f"the run {file.parent.name} is left out: {error}")
    entries, others = _of_one_data(list(found.values()))
    if not entries:
        raise BadInput(f"no run below {runs} is evaluated: run the Dag leaderboard or finetune first")
    return entries, [*warnings, *others]


def _read(run: Run) -> Iterator[Entry]:
    """Yield the entry of a run, if it is one that can be compared."""
    record = run.record()
    stages = {name: entry for name, entry in record["stages"].items() if entry["key"] and not entry["exit_code"]}
    if (run.folder / ARM).exists() or not {"validate", "preprocess", "train", "evaluate"} <= set(stages):
        return
    experiment = Experiment.model_validate(record["experiment"])
    if experiment.data.task in GENERIC:
        return
    data, train, evaluate = (run.artifact(stage) for stage in ("validate", "train", "evaluate"))
    fields = dict(_DEFAULTS)
    for stage in (name for name in _MAKERS if name in stages):
        fields |= flatten(run.artifact(stage).manifest.part)
    kind, name, seed = fields.pop("model.kind"), fields.pop("model.name"), fields.pop("training.seed")
    model = {"encoder": name, "frozen": f"{name}, frozen"}.get(kind, kind)
    settings = {name: value for name, value in fields.items() if value != _DEFAULTS[name]}
    summary = json.loads((evaluate.path / "metrics.json").read_bytes())
    training = json.loads((train.path / "training.json").read_bytes())
    keys = {stage: stages[stage]["key"] for stage in ("train", "evaluate", "predict") if stage in stages}
    yield Entry(
        run.folder.name, experiment.task, model, seed, settings,
        data.manifest.key, max(data.manifest.modified.values(), default=0) / 1e9,
        keys, evaluate.path / "predictions.parquet", summary, training,
        sum(file.stat().st_size for file in (train.path / "model").rglob("*") if file.is_file()),
        stages.get("predict", {}).get("result", {}).get("rows_per_second"),
    )  # fmt: skip


def _of_one_data(entries: list[Entry]) -> tuple[list[Entry], list[str]]:
    """Return the entries on the newest data of their task, and a line for each of the others."""
    newest = {entry.task.name: entry.data for entry in sorted(entries, key=attrgetter("validated"))}
    kept = [entry for entry in entries if entry.data == newest[entry.task.name]]
    return kept, [
        f"the run {entry.run} is left out: its data ({entry.data}) are older than those that other runs of "
        f"{entry.task.name} have ({newest[entry.task.name]})"
        for entry in entries
        if entry.data != newest[entry.task.name]
    ]
