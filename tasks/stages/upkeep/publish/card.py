"""The model card: README.md in the format of the Hugging Face hub, which reads its header."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from include.artifacts import Artifact
from include.experiment import Experiment
from include.fields.data import OWN
from include.glue import Task
from tasks.encoder.base_model import BaseModel
from tasks.encoder.loading import read_head
from tasks.reporting.page import figure

TEMPLATE = Path(__file__).with_name("card.md.j2")


def evidence_of(inputs: Mapping[str, Artifact]) -> dict[str, Any]:
    """Return what the artifacts of validate, preprocess, train, evaluate and gate say of a model."""
    made = {name: artifact.manifest for name, artifact in inputs.items()}
    return {
        "summary": json.loads((inputs["evaluate"].path / "metrics.json").read_text(encoding="utf-8")),
        "gate": made["gate"].result,
        "rows": made["preprocess"].result["rows"],  # of each split, after cleaning
        "data": {"version": made["validate"].key, "fingerprint": made["validate"].fingerprint},
        "training": made["train"].result,
        "settings": made["train"].part,
        "preprocessing": made["preprocess"].part["preprocessing"],
        "thresholds": read_head(inputs["train"].path / "model").thresholds,
        "revision": made["train"].revision,
    }


def model_card(experiment: Experiment, evidence: Mapping[str, Any], base: BaseModel, name: str) -> str:
    """Return the text of the card, whose examples load the model by its name."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        autoescape=False,  # The card is Markdown.
    )  # fmt: skip
    environment.filters |= {"figure": figure, "cell": _cell}
    text = environment.get_template(TEMPLATE.name).render(
        name=name, task=experiment.task, data=_data_name(experiment), base=base, evidence=evidence,
        metrics=list(_metrics(experiment.task, evidence["summary"])), weakest=_weakest(evidence["summary"]),
        needs_code=experiment.model.pooling != "native", teacher=evidence["summary"].get("teacher"),
        distillation=experiment.distillation,
    )  # fmt: skip
    return f"---\n{_header(experiment, evidence, base)}\n---\n\n{text}"


def _header(experiment: Experiment, evidence: Mapping[str, Any], base: BaseModel) -> str:
    """Return the YAML that the hub reads."""
    task, hub = experiment.task, experiment.task.hub if experiment.data.source in ("glue", "hub") else None
    where: dict[str, Any] = {
        "task_type": "text-classification",
        "dataset_type": "nyu-mll/glue" if hub else "custom",
        "dataset_name": _data_name(experiment),
        "dataset_split": hub.dev if hub else "dev",
        "dataset_config": hub.config if hub else None,
    }
    values = evidence["summary"]["metrics"].items()
    results = [EvalResult(**where, metric_type=name, metric_value=value) for name, value in values if value is not None]
    data = ModelCardData(
        base_model=base.hub or None,
        datasets=["nyu-mll/glue"] if hub else None,
        eval_results=results,
        library_name="transformers",
        license=base.license or None,
        metrics=[task.metric],
        model_name=f"{base.name} for {_data_name(experiment)}",
        pipeline_tag="text-classification",
    )
    return data.to_yaml()


def _data_name(experiment: Experiment) -> str:
    data, dataset = experiment.data, experiment.dataset.name
    return dataset or (data.table or Path(data.path).name if data.source in OWN else data.task)


def _metrics(task: Task, summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the name, value, interval and baseline of each metric, the task's own first."""
    names = [task.metric, *(name for name in summary["metrics"] if name != task.metric)]
    for name in names:
        bounds = summary["interval"] if name == task.metric else None
        interval = f"{bounds[0]:.4f} to {bounds[1]:.4f}" if bounds else ""
        baseline = figure(summary["baseline"][name]) if name in summary["baseline"] else ""
        yield name, figure(summary["metrics"][name]), interval, baseline


def _weakest(summary: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the description of the slice with the lowest value, and the value; None if there is no slice."""
    slices = [(part[part["metric"]], part["about"]) for part in summary["slices"].values()]
    found = [(value, about) for value, about in slices if value is not None]
    return (min(found)[1], figure(min(found)[0])) if found else None


def _cell(text: object) -> str:
    """Return a text as the content of a cell of a Markdown table."""
    return " ".join(str(text).replace("|", "\\|").split())
