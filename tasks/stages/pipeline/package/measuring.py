"""Whether the answers of each form agree with those of PyTorch in fp32 on the dev rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from include.answers import SAME_SCORE
from include.artifacts import write_json
from include.fields.results import Packaging
from include.glue import Task
from tasks.encoder.batching import TokenTable
from tasks.inference.changes import Changes
from tasks.inference.packaged_backends import obstacle, openvino_core
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TrainedModel
from tasks.launching.tuning import threads
from tasks.scoring import risk
from tasks.scoring.metrics import as_json
from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.package.forms import FORMS, REFERENCE, Form, problem_of
from tasks.stages.pipeline.package.timing import Speed, measure_speeds

log = logging.getLogger(__name__)


def describe_machine() -> dict[str, Any]:
    """Return the name of the processor, the threads of the service on it, and the precisions that OpenVINO can use."""
    core = openvino_core()
    return {
        "processor": core.get_property("CPU", "FULL_DEVICE_NAME"),
        "threads": threads(ranks=1),
        "precisions": list(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")),
    }


def measure_forms(
    task: Task, dev: TokenTable, package: Path, problems: Mapping[str, str], limits: Packaging
) -> list[dict[str, Any]]:
    """Let every form without a problem answer the dev rows, and return what package.json says of each form.

    What they answered is also written, as the evidence for prediction.max_risk.
    """
    models: dict[str, TrainedModel] = {}
    scored: dict[str, ScoredSplit] = {}

    def compute(form: Form) -> None:
        model = TrainedModel.in_form(package, vars(form))
        runner = Runner(Path(model.folder), model.open(threads(ranks=1)))
        logits = runner.documents(dev, np.arange(len(dev.documents)))
        scored[form.name] = ScoredSplit.of(task, dev, logits, runner.head.temperature).at_thresholds(
            runner.head.thresholds
        )
        models[form.name] = model

    compute(REFERENCE)
    reasons = {REFERENCE.name: ""}
    for form in FORMS[1:]:
        try_it = partial(problem_of, partial(compute, form), "it cannot be computed")
        reasons[form.name] = problems.get(form.name) or obstacle(vars(form)) or try_it()
    found = {name: compare(split, scored[REFERENCE.name]) for name, split in scored.items()}
    speeds = measure_speeds(models, dev)
    offered = [name for name, fidelity in found.items() if not fidelity.reasons(limits)]
    write_json(package / risk.EVIDENCE, {name: scored[name].cross_fitted().evidence() for name in offered})
    return [
        _described(
            form,
            package,
            found[form.name].reasons(limits) if form.name in found else [reasons[form.name]],
            found.get(form.name),
            speeds.get(form.name),
        )
        for form in FORMS
    ]


@dataclass(frozen=True)
class Fidelity(Changes):
    """How far a form is from the reference.

    Attributes:
        agreement: The share of the rows with the same answer: the same labels, or nearly the same score.
    """

    agreement: float
    metric: float
    metric_loss: float

    def reasons(self, limits: Packaging) -> list[str]:
        """Return why the form is not offered; empty if it may be. A value that is not a number is a reason."""
        least, most = limits.min_agreement, limits.max_metric_loss
        checks = {
            f"its answers agree on {self.agreement:.4f} of the rows: less than packaging.min_agreement = {least:g}": (
                self.agreement >= least
            ),
            f"the metric falls by {self.metric_loss:.4f}: more than packaging.max_metric_loss = {most:g}": (
                self.metric_loss <= most
            ),
        }
        return [reason for reason, holds in checks.items() if not holds] + super().reasons(limits)


def compare(form: ScoredSplit, reference: ScoredSplit) -> Fidelity:
    """Compare a form with the reference, row by row."""
    if form.task.kind == "regression":
        assert form.task.score_range is not None  # every regression has one
        low, high = form.task.score_range
        one, other = (scored.predicted[:, None] / (high - low) for scored in (form, reference))
        same = np.abs(one - other)[:, 0] <= SAME_SCORE
    else:
        one, other = form.probabilities, reference.probabilities
        same = (form.predicted == reference.predicted).reshape(len(form), -1).all(axis=1)
    metric, before = (scored.metrics()[scored.task.metric] for scored in (form, reference))
    changes = asdict(Changes.of(one, other))
    return Fidelity(**changes, agreement=float(same.mean()), metric=metric, metric_loss=round(before - metric, 9))


def _described(
    form: Form, package: Path, reasons: list[str], found: Fidelity | None, speeds: dict[str, Speed] | None
) -> dict[str, Any]:
    """Return what package.json says of a form. One that cannot be written or computed has no figures."""
    log.info("%s: %s", form.name, "; ".join(reasons) or "offered")
    figures: dict[str, Any] = {}
    if found and speeds:
        figures |= as_json({name: round(value, 6) for name, value in asdict(found).items()})
        figures["speeds"] = {
            use: {name: float(f"{value:.4g}") for name, value in asdict(speed).items()} for use, speed in speeds.items()
        }
    return {
        "name": form.name,
        "engine": form.engine,
        "precision": form.precision,
        "file": form.file,
        "offered": not reasons,
        "reasons": reasons,
        "megabytes": round(sum(file.stat().st_size for file in form.files(package)) / 1e6, 1),
        **figures,
    }
