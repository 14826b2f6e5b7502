"""The stage package: write the model in several forms, check and time each, and keep those that agree with PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from include.artifacts import write_json
from include.glue import Task
from include.stages import BadInput
from tasks.context import Context, Outcome

if TYPE_CHECKING:
    from tasks.encoder.batching import TokenTable
    from tasks.scoring.drift import Profile

#: The page for people. Its figures are those of package.json.
PAGE = "package.html"
#: The number of dev texts that a package keeps.
EXAMPLE_ROWS = 16


def run(context: Context) -> Outcome:
    """Write the package, with the figures of all forms and the files of those that are offered."""
    from tasks.encoder.batching import TokenTable
    from tasks.encoder.loading import load_trained
    from tasks.inference.packaged_backends import fastest
    from tasks.inference.packaged_model import DESCRIPTION
    from tasks.reporting.page import render
    from tasks.scoring.drift import PROFILE
    from tasks.stages.pipeline.package.forms import FORMS, remove_unoffered, write_forms
    from tasks.stages.pipeline.package.measuring import describe_machine, measure_forms
    from tasks.stages.pipeline.package.mlflow_files import columns, write_mlflow_files

    task, package, train = context.experiment.task, context.output, context.trained
    key = context.inputs["train"].manifest.key
    limits = context.experiment.packaging
    splits = context.inputs["preprocess"].path
    model, dev = load_trained(train / "model"), TokenTable.open(splits / "dev")
    if not len(dev):
        raise BadInput(f"{splits / 'dev'} contains no rows to check the forms on: add rows to the split")
    problems = write_forms(model, train / "model", dev, package)
    forms = measure_forms(task, dev, package, problems, limits)
    offered = [form for form in forms if form["offered"]]
    served, predicts = fastest(offered, "serving"), fastest(offered, "prediction")
    description = {
        "served": served["name"],
        "predicts": predicts["name"],
        "columns": columns(task),
        "kind": task.kind,
        "labels": list(model.spec.label_names),
        "thresholds": list(model.spec.thresholds),
        "score_range": task.score_range,
        "max_length": model.spec.max_length,
        "cleaning": list(model.spec.cleaning),
        "stride": model.spec.stride,
        "train": key,
        "metric": task.metric,
        "rows": len(dev.documents),
        "limits": limits.model_dump(),
        "machine": describe_machine(),
        "forms": forms,
    }
    remove_unoffered(package, {form["name"]: form["offered"] for form in forms})
    write_json(package / DESCRIPTION, description)
    _write_examples(package, dev)
    write_json(package / PROFILE, training_profile(task, TokenTable.open(splits / "train")).as_json())
    form = next(form for form in FORMS if form.name == served["name"])
    write_mlflow_files(package, task, form, key)
    template = Path(__file__).with_name("package.html.j2")
    page = render(
        template, run=context.run.folder.name, task=task.name, package=description, served=served, predicts=predicts
    )
    (package / PAGE).write_text(page, encoding="utf-8")
    chosen = {"served": served["name"], "predicts": predicts["name"]}
    return Outcome({**chosen, "forms": forms, "files": {"package": PAGE}})


def _write_examples(package: Path, dev: TokenTable) -> None:
    """Write some dev texts of all lengths with the logits of each form, which a loaded package must reproduce."""
    import numpy as np

    from tasks.inference.examples import write_examples

    first = dev.documents[np.argsort(dev.lengths[dev.documents], kind="stable")]
    chosen = first[np.unique(np.linspace(0, len(first) - 1, EXAMPLE_ROWS).astype(int))]
    texts = [list(column) for column in zip(*dev.sentences(chosen), strict=True)]
    write_examples(package, texts)


def training_profile(task: Task, train: TokenTable) -> Profile:
    """Count the texts that a model has learned from, to find drift: each once, without the copies of augmentation."""
    from tasks.encoder.tokens import COPY
    from tasks.scoring.drift import Profile
    from tasks.scoring.predictions import label_names

    rows = train.documents[train.rows[train.documents] < COPY]
    return Profile.of(task.kind, train.sentences(rows), label_names(task, train.labels[rows]).tolist())
