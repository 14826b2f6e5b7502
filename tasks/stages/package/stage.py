"""The stage package: write the model in several forms, check and time each, and keep those that agree with PyTorch."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from include.artifacts import write_json
from include.experiment import Experiment
from include.glue import Task
from include.runs import Run
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable, length_batches
from tasks.encoder.loading import load_trained
from tasks.encoder.spec import HeadSpec
from tasks.inference.backend import Backend
from tasks.inference.packaged_model import DESCRIPTION, backend_of
from tasks.inference.torch_backend import TorchBackend
from tasks.scoring.scored import ScoredSplit
from tasks.stages.package.fidelity import Fidelity, compare
from tasks.stages.package.forms import FORMS, REFERENCE, Form, remove_unoffered, write_forms
from tasks.stages.package.machine import describe_machine, lacks
from tasks.stages.package.mlflow_files import columns, write_mlflow_files
from tasks.stages.package.timing import BATCH_SIZE, Speed, measure

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return "", because the stage reads nothing outside the store. Remove the artifact to measure it again."""
    return ""


def run(context: Context) -> Outcome:
    """Write the package, with the figures of all forms and the files of those that are offered."""
    task, package, train = context.experiment.task, context.output, context.inputs["train"]
    model, dev = load_trained(train.path / "model"), _open(context.inputs["preprocess"].path / "dev")
    longest = model.spec.max_length
    write_forms(model, train.path / "model", dev, package)
    backends = {REFERENCE.name: TorchBackend(model), **_others(package, longest)}
    scored = {name: _score(task, backend, dev, model.spec) for name, backend in backends.items()}
    found = {name: compare(each, scored[REFERENCE.name]) for name, each in scored.items()}
    speeds = measure(backends, REFERENCE.name, dev)
    forms = [_described(form, package, found.get(form.name), speeds.get(form.name)) for form in FORMS]
    served = max((form for form in forms if form["offered"]), key=lambda form: form["times_torch"])["name"]
    description = {
        "served": served,
        "columns": columns(task),
        "kind": task.kind,
        "labels": list(model.spec.label_names),
        "thresholds": list(model.spec.thresholds),
        "score_range": task.score_range,
        "max_length": longest,
        "train": train.manifest.key,
        "metric": task.metric,
        "rows": len(dev),
        "machine": describe_machine(),
        "forms": forms,
    }
    del backends  # before the files that they map are removed
    remove_unoffered(package, {form["name"]: form["offered"] for form in forms})
    write_json(package / DESCRIPTION, description)
    write_mlflow_files(package, task, next(form for form in FORMS if form.name == served), train.manifest.key)
    return Outcome({"served": served, "forms": forms, "files": {"package": DESCRIPTION}})


def _open(folder: Path) -> TokenTable:
    table = TokenTable.open(folder)
    if not len(table):
        raise BadInput(f"{folder} contains no rows to check the forms on: add rows to the split")
    return table


def _others(package: Path, longest: int) -> dict[str, Backend]:
    threads = torch.get_num_threads()
    return {
        form.name: backend_of(package / form.file, form.engine, form.precision, longest, threads)
        for form in FORMS
        if form is not REFERENCE and not lacks(form)
    }


def _score(task: Task, backend: Backend, dev: TokenTable, head: HeadSpec) -> ScoredSplit:
    """Compute the logits of all dev rows."""
    logits = np.empty((len(dev), task.outputs), np.float32)
    for indices in length_batches(dev.lengths, batch_size=BATCH_SIZE):
        batch = dev.batch(indices)
        parts = (part.numpy() for part in (batch.input_ids, batch.attention_mask, batch.token_type_ids))
        logits[indices] = backend.logits(*parts)
    return ScoredSplit(task, dev.rows, dev.labels, logits, ()).at_thresholds(head.thresholds)


def _described(form: Form, package: Path, found: Fidelity | None, speed: Speed | None) -> dict[str, Any]:
    """Return what package.json says of a form. One that the processor lacks has no figures."""
    reasons = [lacks(form)] if found is None else found.reasons()
    log.info("%s: %s, %s", form.name, speed or "not measured", "; ".join(reasons) or "offered")
    return {
        "name": form.name,
        "engine": form.engine,
        "precision": form.precision,
        "file": form.file,
        "offered": not reasons,
        "reasons": reasons,
        "megabytes": round(sum(file.stat().st_size for file in form.files(package)) / 1e6, 1),
        **(found.as_json() if found else {}),
        **(speed.as_json() if speed else {}),
    }
