"""The order of a study: calibrate, write the predictions down, measure, compare, and only then look further.

Each part leaves a JSON file in the study's folder. A file that is there is kept, so that a study can be continued, and
predictions are never made again once they are written.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.scaling.calibrate import Calibration, calibrate
from benchmarks.scaling.measure import Measured, measure
from benchmarks.scaling.model import Interval, Step
from benchmarks.scaling.trace import Layout
from benchmarks.scaling.wire import GIGABIT, REPEATS, SIZES, traffic
from include.artifacts import revision, sha256, write_json

CALIBRATION, PREDICTIONS, MEASURED = "calibration.json", "predictions.json", "measured.json"
TOLERANCE = 0.1  # of a median; beyond it, the model is not to be believed where nothing was measured


@dataclass(frozen=True)
class Plan:
    """What a study does.

    Attributes:
        encoders: sizes whose compute is calibrated; the first of them is measured.
        ranks: numbers of ranks that are measured.
        compressions: of rings.
        hierarchical: compressions between hosts of two ranks, for four ranks and more.
        steps: that are measured of each layout.
        messages: sizes of the calibrated collectives, in bytes.
        repeats: of each calibrated collective.
    """

    encoders: tuple[str, ...] = ("MiniLM", "DistilBERT", "BERT-base")
    ranks: tuple[int, ...] = (2, 4, 8, 16)
    compressions: tuple[str, ...] = ("none", "fp16", "int8", "onebit", "topk", "powersgd")
    hierarchical: tuple[str, ...] = ("none", "onebit")
    steps: int = 5
    messages: tuple[int, ...] = SIZES
    repeats: int = REPEATS

    @property
    def layouts(self) -> list[Layout]:
        """Those that are measured; the largest ones last."""
        return [
            layout
            for ranks in self.ranks
            for layout in (
                *(Layout(compression, ranks) for compression in self.compressions),
                *(Layout(compression, ranks // 2, per_host=2) for compression in self.hierarchical if ranks >= 4),
            )
        ]


QUICK = Plan(("tiny",), (2, 4), ("none", "onebit"), ("none",), steps=3, messages=(2**12, 2**16, 2**20), repeats=2)


@dataclass(frozen=True)
class Row:
    """A layout: what was predicted for a step over links of 1 Gbit/s, and what was measured."""

    layout: Layout
    predicted: Interval
    megabytes: float
    measured: Measured

    @property
    def error(self) -> float:
        """Of the predicted time, relative to the measured median."""
        return self.predicted.fitted / self.measured.median - 1


def run(folder: Path, plan: Plan, scratch: Path, predict_only: bool) -> tuple[Calibration, list[Row]]:
    """Do what is still missing in the folder; return the calibration, and predictions beside measurements, if any.

    Raises:
        ValueError: if the measurements in the folder were made for other predictions.
        RuntimeError: if a rank failed or was killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / name for name in (CALIBRATION, PREDICTIONS, MEASURED)]
    calibrated, predicted, measured = files
    if not calibrated.exists():
        calibration = calibrate(plan.encoders, plan.messages, plan.repeats, scratch)
        write_json(calibrated, dataclasses.asdict(calibration))
    calibration = Calibration.read(_read(calibrated))
    if not predicted.exists():
        if measured.exists():
            raise ValueError(f"{measured} was made without predictions: remove it")
        write_json(predicted, _predictions(calibration, plan))
    if predict_only and not measured.exists():
        return calibration, []
    if not measured.exists():
        write_json(measured, _measurements(calibration, plan, predicted))
    return calibration, list(_compare(predicted, measured))


def _predictions(calibration: Calibration, plan: Plan) -> dict[str, Any]:
    """Predict every layout, and say when and with which code that was done."""
    wires, profile = calibration.wires, calibration.profiles[plan.encoders[0]]
    rows = []
    for layout in plan.layouts:
        step = Step.of(profile, layout)
        rows.append(
            {
                "layout": dataclasses.asdict(layout),
                "seconds": dataclasses.asdict(Interval.of(step, wires, GIGABIT)),
                "megabytes": sum(traffic(m.kind, m.bytes, m.ranks) for m in step.messages if not m.inside) / 1e6,
            }
        )
    head = {"time": time.time(), "commit": revision(), "encoder": plan.encoders[0], "bits_per_second": GIGABIT}
    return {**head, "rows": rows}


def _measurements(calibration: Calibration, plan: Plan, predicted: Path) -> dict[str, Any]:
    """Measure what the file predicts, whose digest is kept with the measurements."""
    written, profile = _read(predicted), calibration.profiles[plan.encoders[0]]
    digest = sha256(predicted)
    rows = []
    for row in written["rows"]:
        layout = Layout(**row["layout"])
        one = measure(written["encoder"], profile, layout, written["bits_per_second"], plan.steps)
        rows.append({"layout": row["layout"], **dataclasses.asdict(one)})
        print(f"measured: {layout.label}, {layout.ranks} ranks, {1e3 * one.median:,.0f} ms", flush=True)
    return {"time": time.time(), "predictions_sha256": digest, "rows": rows}


def _compare(predicted: Path, measured: Path) -> Iterator[Row]:
    before, after = _read(predicted), _read(measured)
    if after["predictions_sha256"] != sha256(predicted):
        raise ValueError(f"{measured} belongs to other predictions than {predicted}: remove it, and measure again")
    for written, found in zip(before["rows"], after["rows"], strict=True):
        layout = Layout(**found.pop("layout"))
        yield Row(layout, Interval(**written["seconds"]), written["megabytes"], Measured(**found))


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
