"""Whether the answers of each form agree with those of PyTorch in fp32 on the dev rows, and how fast each form is."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openvino

from include.answers import SAME_SCORE
from include.fields.results import Packaging, Prediction
from include.glue import Task
from tasks.encoder.batching import Array, Batch, TokenTable
from tasks.inference.changes import Changes
from tasks.inference.packaged_backends import computes
from tasks.inference.runner import Backend, Runner, batches
from tasks.inference.trained_model import TrainedModel
from tasks.launching.tuning import threads
from tasks.scoring.scored import ScoredSplit
from tasks.stages.pipeline.package.forms import FORMS, REFERENCE, Form, problem_of

log = logging.getLogger(__name__)

#: Rows of the throughput, and how often each form computes them; rows of the latency.
ROWS, REPEATS, SINGLE_ROWS = 64, 5, 50


def describe_machine() -> dict[str, Any]:
    """Return the name of the processor, and the precisions that OpenVINO can use on it."""
    core = openvino.Core()
    return {
        "processor": core.get_property("CPU", "FULL_DEVICE_NAME"),
        "precisions": list(core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")),
    }


def lacks(form: Form) -> str:
    """Return why the processor cannot compute a form in time; "" if it can."""
    return "" if computes(form.precision) else f"this processor does not compute in {form.precision}"


def measure_forms(
    task: Task, dev: TokenTable, package: Path, problems: Mapping[str, str], limits: Packaging
) -> list[dict[str, Any]]:
    """Let every form without a problem answer the dev rows, and return what package.json says of each form."""
    models: dict[str, TrainedModel] = {}
    scored: dict[str, ScoredSplit] = {}

    def compute(form: Form) -> None:
        folder = package / REFERENCE.file
        model = TrainedModel(str(folder), str(package / form.file), form.engine, form.precision)
        runner = Runner(folder, model.open(threads(ranks=1)))
        logits = runner.documents(dev, np.arange(len(dev.documents)))
        scored[form.name] = ScoredSplit.of(task, dev, logits).at_thresholds(runner.head.thresholds)
        models[form.name] = model

    compute(REFERENCE)
    reasons = {REFERENCE.name: ""}
    for form in FORMS[1:]:
        try_it = partial(problem_of, partial(compute, form), "it cannot be computed")
        reasons[form.name] = problems.get(form.name) or lacks(form) or try_it()
    found = {name: compare(split, scored[REFERENCE.name]) for name, split in scored.items()}
    speeds = _speeds({name: model.open(threads=1) for name, model in models.items()}, dev)
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


@dataclass(frozen=True)
class Speed:
    """The speed of a form on one CPU thread: the median and the bounds over the repeats.

    Attributes:
        times_torch: The median of the ratios to the reference's rows per second in the same repeat.
        p50: The median time of a single row, in milliseconds; p95 is the 95th percentile.
    """

    rows_per_second: float
    lowest: float
    highest: float
    times_torch: float
    p50: float
    p95: float

    def __str__(self) -> str:
        return f"{self.rows_per_second:.0f} rows/s ({self.times_torch:.2f} times PyTorch), {self.p50:.1f} ms a row"


def _speeds(backends: Mapping[str, Backend], table: TokenTable) -> dict[str, Speed]:
    """Measure all forms, opened for one thread, on rows that are evenly spread over their lengths.

    The batches are those of the stages predict and score, whose workers have one thread each. The forms take turns,
    with every pass over the rows and with every single row, so that other work on the machine slows all of them alike.
    Each has computed the same batches before, because some prepare themselves for a new shape.
    """
    order = np.argsort(table.lengths, kind="stable")
    chosen = order[_spread(len(order), ROWS)]
    together = [table.batch(chosen[places]) for places in batches(table.lengths[chosen], Prediction())]
    single = [table.batch(order[[place]]) for place in _spread(len(order), SINGLE_ROWS)]
    rates: dict[str, list[float]] = {name: [] for name in backends}
    latencies: dict[str, list[float]] = {name: [] for name in backends}
    for backend in backends.values():
        for batch in (*together, *single):
            _seconds(backend, batch)
    for _ in range(REPEATS):
        for name, backend in backends.items():
            rates[name].append(len(chosen) / sum(_seconds(backend, batch) for batch in together))
    for batch in single:
        for name, backend in backends.items():
            latencies[name].append(1000 * _seconds(backend, batch))
    return {
        name: Speed(
            statistics.median(own),
            min(own),
            max(own),
            statistics.median(rate / other for rate, other in zip(own, rates[REFERENCE.name], strict=True)),
            float(np.percentile(latencies[name], 50)),
            float(np.percentile(latencies[name], 95)),
        )
        for name, own in rates.items()
    }


def _spread(rows: int, wanted: int) -> Array:
    return np.linspace(0, rows - 1, min(rows, wanted)).astype(int)


def _seconds(backend: Backend, batch: Batch) -> float:
    """Compute a batch, and return how long it takes."""
    started = time.perf_counter()
    backend.logits(batch.input_ids.numpy(), batch.attention_mask.numpy(), batch.token_type_ids.numpy())
    return time.perf_counter() - started


def _described(
    form: Form, package: Path, reasons: list[str], found: Fidelity | None, speed: Speed | None
) -> dict[str, Any]:
    """Return what package.json says of a form. One that cannot be written or computed has no figures."""
    log.info("%s: %s, %s", form.name, speed or "not measured", "; ".join(reasons) or "offered")
    figures: dict[str, float | None] = {}
    if found and speed:
        figures |= {name: round(x, 6) if math.isfinite(x) else None for name, x in asdict(found).items()}
        figures |= {name: float(f"{value:.4g}") for name, value in asdict(speed).items()}
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
