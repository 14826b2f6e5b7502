"""The report of an evaluation, with its plots. Its sections are the templates in parts/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from include.artifacts import Artifact
from include.glue import GENERIC, SPLITS
from tasks.context import Context
from tasks.reporting import drawing, page
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.thresholds import FOLDS
from tasks.scoring.verdict import Verdict
from tasks.stages.pipeline.evaluate import plots
from tasks.stages.pipeline.evaluate.probabilities import calibrate, operating_points
from tasks.stages.pipeline.evaluate.rows import NOTHING, Kept, worst

TEMPLATE = Path(__file__).with_name("report.html.j2")
#: Up to this number of classes, the confusion matrix is a table with names and counts; beyond it, it is a plot.
READABLE = 12
#: The alternative texts of the plots.
PLOTS = {
    "confusion": "Confusion matrix",
    "reliability": "Reliability diagram",
    "operating": "Precision over recall, and ROC curve",
    "scatter": "True against predicted scores",
    "errors": "Histogram of errors",
    "training": "Loss and dev metric over the steps",
}


@dataclass(frozen=True)
class Provenance:
    """Where the model comes from.

    Attributes:
        data: A readable name of the data: a registered task, or the folder of the user's files.
        run: The name of the run that created the report. Runs that reuse the artifact also reuse the report.
        facts: Title to settings, which the report shows at its end.
    """

    data: str
    run: str
    facts: Mapping[str, Mapping[str, Any]]


def provenance_of(context: Context) -> Provenance:
    """Return the provenance of the model that the run evaluates."""
    data = context.experiment.data
    name = f"{Path(data.path).name or data.path} ({data.task})" if data.task in GENERIC else data.task
    return Provenance(name, context.run.folder.name, _facts(context.inputs))


def _facts(inputs: Mapping[str, Artifact]) -> dict[str, dict[str, Any]]:
    train = inputs["train"].manifest
    settings = {
        "encoder": train.part["model"]["name"],
        "pooling": train.part["model"]["pooling"],
        **{name.replace("_", " "): value for name, value in train.part["training"].items()},
        "gradient compression": train.part["communication"]["compression"],
    }
    keys = {f"{name} artifact": artifact.manifest.key for name, artifact in inputs.items()}
    rows = inputs["preprocess"].manifest.result.get("rows", {})
    source = inputs["validate"].manifest.part["data"]
    data = {"source": source["source"], "folder": source["path"]}
    if source["source"] == "files":
        data["files"] = ", ".join(source[split] for split in SPLITS)
    data |= {f"{split} rows": count for split, count in rows.items()}
    return {"Training": settings, "Data and provenance": {**data, **keys, "code revision": train.revision}}


def write_report(
    folder: Path,
    dev: ScoredSplit,
    summary: Mapping[str, Any],
    verdict: Verdict,
    history: Path,
    provenance: Provenance,
    kept: Kept = NOTHING,
) -> None:
    """Draw the plots, and write report.html, which contains them. `history` is the metrics.jsonl of train."""
    task, images = dev.task, {}
    for name, figure in _figures(dev, summary, history).items():
        file = folder / f"{name}.png"
        drawing.save(figure, file)
        images[name] = {"title": PLOTS[name], "source": page.inline(file)}
    html = page.render(
        TEMPLATE, task=task, summary=summary, verdict=verdict, mistakes=worst(dev, kept), plots=images,
        provenance=provenance, readable=task.outputs <= READABLE, folds=FOLDS,
    )  # fmt: skip
    (folder / "report.html").write_text(html, encoding="utf-8")


def _figures(dev: ScoredSplit, summary: Mapping[str, Any], history: Path) -> dict[str, Figure]:
    """Draw the plots for the task's kind."""
    task = dev.task
    figures = {"training": plots.training(plots.read_curves(history, task.metric), task.metric)}
    if task.kind == "classification":
        figures["reliability"] = plots.reliability(calibrate(dev))
        if task.outputs > READABLE:
            figures["confusion"] = plots.confusion(summary["confusion"])
        if found := operating_points(dev):
            figures["operating"] = plots.operating(found)
    elif task.kind == "regression":
        figures["scatter"] = plots.scatter(dev.labels, dev.predicted)
        figures["errors"] = plots.errors(dev.labels, dev.predicted)
    return figures
