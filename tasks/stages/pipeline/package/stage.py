"""The stage package: write the model in several forms, check and time each, and keep those that agree with PyTorch.

To time them again, on another machine for example, remove the artifact.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from include.artifacts import write_json
from include.glue import Task
from include.stages import BadInput
from tasks.context import Context, Outcome
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import load_trained
from tasks.inference.packaged_forms import fastest
from tasks.inference.packaged_model import DESCRIPTION, EXAMPLES, PackagedModel
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TrainedModel
from tasks.launching.machine import threads
from tasks.reporting.page import render
from tasks.scoring.drift import PROFILE
from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.package.fidelity import Fidelity, compare
from tasks.stages.pipeline.package.forms import FORMS, REFERENCE, Form, problem_of, remove_unoffered, write_forms
from tasks.stages.pipeline.package.machine import describe_machine, lacks
from tasks.stages.pipeline.package.mlflow_files import columns, write_mlflow_files
from tasks.stages.pipeline.package.profile import training_profile
from tasks.stages.pipeline.package.timing import Speed, measure

log = logging.getLogger(__name__)

#: The page for people. Its figures are those of DESCRIPTION.
PAGE = "package.html"
#: The number of dev texts that a package keeps.
EXAMPLE_ROWS = 16


def run(context: Context) -> Outcome:
    """Write the package, with the figures of all forms and the files of those that are offered."""
    task, package, train = context.experiment.task, context.output, context.inputs["train"]
    splits = context.inputs["preprocess"].path
    model, dev = load_trained(train.path / "model"), _open(splits / "dev")
    problems = write_forms(model, train.path / "model", dev, package)
    forms = _measured(Tried(task, dev, train.path / "model"), package, problems)
    served = fastest(form for form in forms if form["offered"])["name"]
    description = {
        "served": served,
        "columns": columns(task),
        "kind": task.kind,
        "labels": list(model.spec.label_names),
        "thresholds": list(model.spec.thresholds),
        "score_range": task.score_range,
        "max_length": model.spec.max_length,
        "cleaning": list(model.spec.cleaning),
        "stride": model.spec.stride,
        "train": train.manifest.key,
        "metric": task.metric,
        "rows": len(dev.documents),
        "machine": describe_machine(),
        "forms": forms,
    }
    remove_unoffered(package, {form["name"]: form["offered"] for form in forms})
    write_json(package / DESCRIPTION, description)
    _write_examples(package, dev)
    write_json(package / PROFILE, training_profile(task, TokenTable.open(splits / "train")).as_json())
    write_mlflow_files(package, task, next(form for form in FORMS if form.name == served), train.manifest.key)
    values = {"task": task.name, "package": description, "served": next(f for f in forms if f["name"] == served)}
    page = render(Path(__file__).with_name("package.html.j2"), run=context.run.folder.name, **values)
    (package / PAGE).write_text(page, encoding="utf-8")
    return Outcome({"served": served, "forms": forms, "files": {"package": PAGE}})


def _write_examples(package: Path, dev: TokenTable) -> None:
    """Write some dev texts of all lengths, with the logits of the served form. Whoever loads the package compares."""
    first = dev.documents[np.argsort(dev.lengths[dev.documents], kind="stable")]
    chosen = first[np.unique(np.linspace(0, len(first) - 1, EXAMPLE_ROWS).astype(int))]
    texts = [list(column) for column in zip(*dev.sentences(chosen), strict=True)]
    write_json(package / EXAMPLES, {"texts": texts, "logits": PackagedModel(package).logits(texts).tolist()})


class Tried:
    """The forms that have computed all dev rows, PyTorch first.

    Args:
        task: the task.
        dev: the rows.
        folder: the folder of the model.

    Attributes:
        models: name of a form to the model in this form.
        scored: name of a form to the rows with its logits.
    """

    def __init__(self, task: Task, dev: TokenTable, folder: Path) -> None:
        self.task, self.dev, self._folder = task, dev, folder
        self.models: dict[str, TrainedModel] = {}
        self.scored: dict[str, ScoredSplit] = {}
        self._score(REFERENCE, TrainedModel(str(folder), str(folder)))

    def add(self, form: Form, package: Path) -> str:
        """Let a form compute the rows. Return why it cannot, or ""."""
        model = TrainedModel(str(self._folder), str(package / form.file), form.engine, form.precision)
        problem = problem_of(lambda: self._score(form, model))
        return problem and f"it cannot be computed: {problem}"

    def _score(self, form: Form, model: TrainedModel) -> None:
        runner = Runner(self._folder, model.open(threads(ranks=1)))
        logits = runner.documents(self.dev, np.arange(len(self.dev.documents)))
        split = ScoredSplit.of(self.task, self.dev, logits)
        self.scored[form.name] = split.at_thresholds(runner.head.thresholds)
        self.models[form.name] = model


def _open(folder: Path) -> TokenTable:
    table = TokenTable.open(folder)
    if not len(table):
        raise BadInput(f"{folder} contains no rows to check the forms on: add rows to the split")
    return table


def _measured(tried: Tried, package: Path, problems: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return what package.json says of all forms, of which some have problems already."""
    reasons = dict(problems)
    for form in FORMS[1:]:
        reasons[form.name] = reasons.get(form.name) or lacks(form) or tried.add(form, package)
    found = {name: compare(scored, tried.scored[REFERENCE.name]) for name, scored in tried.scored.items()}
    backends = {name: model.open(threads=1) for name, model in tried.models.items()}
    speeds = measure(backends, REFERENCE.name, tried.dev)
    return [
        _described(form, package, reasons.get(form.name, ""), found.get(form.name), speeds.get(form.name))
        for form in FORMS
    ]


def _described(form: Form, package: Path, problem: str, found: Fidelity | None, speed: Speed | None) -> dict[str, Any]:
    """Return what package.json says of a form. One that cannot be written or computed has no figures."""
    reasons = [problem] if found is None else found.reasons()
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
