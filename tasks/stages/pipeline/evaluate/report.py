"""The report of an evaluation, with its plots. Its sections are the templates in parts/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from include.glue import GENERIC, SPLITS
from tasks.context import Context
from tasks.reporting import drawing, page
from tasks.scoring.folds import FOLDS
from tasks.scoring.scored import ScoredSplit
from tasks.scoring.verdict import Verdict
from tasks.stages.pipeline.evaluate import plots
from tasks.stages.pipeline.evaluate.explaining import tinted
from tasks.stages.pipeline.evaluate.rows import NOTHING, Explained, Kept, worst
from tasks.stages.pipeline.evaluate.summary import operating_points

TEMPLATE = Path(__file__).with_name("report.html.j2")
#: Up to this number of classes, the confusion matrix is a table with names and counts; beyond it, it is a plot.
READABLE = 12
#: The alternative texts of the plots.
PLOTS = {
    "confusion": "Confusion matrix",
    "reliability": "Reliability diagrams before and after calibration",
    "risk": "Error among the answered rows over their share",
    "operating": "Precision over recall, and ROC curve",
    "scatter": "True against predicted scores",
    "errors": "Histogram of errors",
    "training": "Loss and dev metric over the steps",
}
#: What the bins of a reliability diagram count.
COUNTED = {"classification": "rows", "multilabel": "decisions"}


def provenance_of(context: Context) -> dict[str, Any]:
    """Return where the model comes from: a name of the data, the run, and the facts at the report's end."""
    chosen, inputs = context.experiment.data, context.inputs
    place = chosen.table or Path(chosen.path).name or chosen.path
    name = f"{place} ({chosen.task})" if chosen.task in GENERIC else chosen.task
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
    if version := inputs["validate"].manifest.result.get("table_version"):
        data |= {"table": place, "version": version}
    data |= {f"{split} rows": count for split, count in rows.items()}
    facts = {"Training": settings, "Data and provenance": {**data, **keys, "code revision": train.revision}}
    return {"data": name, "run": context.run.folder.name, "facts": facts}


def write_report(
    folder: Path,
    dev: ScoredSplit,
    summary: Mapping[str, Any],
    verdict: Verdict,
    history: Path,
    provenance: Mapping[str, Any],
    kept: Kept = NOTHING,
    explained: Explained = NOTHING,
) -> None:
    """Draw the plots, and write report.html, which contains them. `history` is the metrics.jsonl of train."""
    task, images = dev.task, {}
    for name, figure in _figures(dev, summary, history).items():
        file = folder / f"{name}.png"
        drawing.save(figure, file)
        images[name] = {"title": PLOTS[name], "source": page.inline(file)}
    html = page.render(
        TEMPLATE, task=task, summary=summary, verdict=verdict, mistakes=worst(dev, kept), plots=images,
        provenance=provenance, readable=task.outputs <= READABLE, folds=FOLDS, explained=explained,
        tinted=tinted,
    )  # fmt: skip
    (folder / "report.html").write_text(html, encoding="utf-8")


def _figures(dev: ScoredSplit, summary: Mapping[str, Any], history: Path) -> dict[str, Figure]:
    """Draw the plots for the task's kind."""
    task = dev.task
    train, losses, metrics = (plots.read_curve(history, name) for name in ("loss", "dev_loss", task.metric))
    figures = {"training": plots.training(train, losses, metrics, task.metric)}
    if task.kind != "regression":
        figures["reliability"] = plots.reliability(summary["calibration"], COUNTED[task.kind])
    if task.kind == "classification":
        figures["risk"] = plots.risk(dev.evidence(), summary["risk"])
        if task.outputs > READABLE:
            figures["confusion"] = plots.confusion(summary["confusion"])
        if found := operating_points(dev):
            figures["operating"] = plots.operating(found)
    elif task.kind == "regression":
        figures["scatter"] = plots.scatter(dev.labels, dev.predicted)
        figures["errors"] = plots.errors(dev.labels, dev.predicted)
    return figures
