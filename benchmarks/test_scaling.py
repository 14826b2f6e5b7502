"""The parts of the scaling study that decide whether its figures are to be believed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from unittest.mock import MagicMock, Mock

import horovod.torch as hvd
import pytest

from benchmarks.links import BURST, FILES, PREFIX, Host, joined_hosts, missing
from benchmarks.scaling import __main__ as study
from benchmarks.scaling.fleet import on_hosts
from benchmarks.scaling.measure import Measured
from benchmarks.scaling.model import Interval
from benchmarks.scaling.study import CALIBRATION, MEASURED, PREDICTIONS, QUICK, Row, run
from benchmarks.scaling.trace import Layout, Message, trace_bucket
from benchmarks.scaling.wire import Samples, fit, traffic


def test_the_fit_finds_latency_overhead_and_cost() -> None:
    samples: Samples = {
        "sum": [
            (1 / rate, size, 1e-3 + 1.05 * 8 * max(0, size - BURST) / rate + 5e-10 * size)
            for rate in (10**9, 10**8)
            for size in (2**12, 2**20, 2**24)
        ]
    }
    line = fit(samples)["sum"]
    assert (line.latency, line.overhead, line.cost) == pytest.approx((1e-3, 1.05, 5e-10), rel=1e-3)


@pytest.mark.parametrize("compression", ["none", "fp16", "int8", "int4", "onebit", "topk", "powersgd"])
def test_a_trace_has_the_bytes_of_the_documented_formulas(compression: str) -> None:
    ranks, shape = 4, (512, 1024)  # whose shards are whole blocks
    phases = trace_bucket((shape,), Layout(compression, ranks), compressed=True)
    sent = sum(traffic(m.kind, m.bytes, m.ranks) for phase in phases for m in phase if isinstance(m, Message))
    elements = shape[0] * shape[1]
    ring = 2 * (ranks - 1) / ranks
    expected = {
        "none": ring * 4 * elements,
        "fp16": ring * 2 * elements,
        "int8": ring * (elements + elements / 64),
        "int4": ring * (elements / 2 + elements / 64),
        "onebit": ring * (elements / 8 + elements / 512),
        "topk": (ranks - 1) * 8 * round(0.01 * elements),
        "powersgd": ring * 4 * 4 * sum(shape),
    }
    assert sent == pytest.approx(expected[compression], rel=1e-6)


def test_nothing_is_measured_before_it_is_predicted(tmp_path: Path) -> None:
    calibration = {
        "profiles": {}, "across": {}, "inside": {}, "hop": 0, "machine": "", "load": [0, 0], "time": 0,
    }  # fmt: skip
    (tmp_path / CALIBRATION).write_text(json.dumps(calibration))
    (tmp_path / MEASURED).write_text(json.dumps({"predictions_sha256": "of others", "rows": []}))
    with pytest.raises(ValueError, match="without predictions"):
        run(tmp_path, QUICK, tmp_path, predict_only=False)
    (tmp_path / PREDICTIONS).write_text(json.dumps({"rows": []}))
    with pytest.raises(ValueError, match="belongs to other predictions"):
        run(tmp_path, QUICK, tmp_path, predict_only=False)


@pytest.mark.parametrize("median", [1.0, 1.09, 1.12, 0.9])
def test_nothing_is_extrapolated_from_predictions_that_were_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], median: float
) -> None:
    tables = dict.fromkeys(("wire_table", "compute_table", "rows_table"), lambda _: "")
    outlook = Mock(NODES=(8,), COMPRESSIONS=("fp16",), extrapolate=Mock(return_value=[]))
    monkeypatch.setattr(study, "report", Mock(**tables))
    monkeypatch.setattr(study, "outlook", outlook)
    rows = [
        Row(Layout("none", 2), Interval(1.0, 1.0, 1.0), 44.0, Measured([1.0], 44, 1.0)),
        Row(Layout("fp16", 2), Interval(1.0, 1.0, 1.0), 22.0, Measured([median], 22, 1.0)),
    ]
    study.describe(MagicMock(load=(0.0, 0.0), hop=0.0), rows, QUICK, tmp_path)
    off = "1 of 2 medians are more than 10 % off their prediction (ring, fp16, 2 ranks)" in capsys.readouterr().out
    assert off == (abs(1 / median - 1) > 0.1)
    assert outlook.extrapolate.called == outlook.break_even.called == (not off)


@pytest.mark.long  # and as root
def test_nothing_is_left_of_ranks_of_which_one_was_killed() -> None:
    assert not missing(), missing()
    with pytest.raises(RuntimeError, match="ended with exit code"), joined_hosts(2) as hosts:
        on_hosts(hosts, _killed)
    assert not [*Path("/run/netns").glob(f"{PREFIX}-{os.getpid()}-*"), *FILES.glob(f"{PREFIX}-{os.getpid()}-*")]


def _killed(host: Host) -> None:
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.barrier()
