"""Which ranks x threads a training on CPUs gets from `training.ranks: auto`."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from include.stages import Stopped
from tasks.__main__ import SPINS
from tasks.launching import layouts
from tasks.launching.launch import _train_apart, launch
from tasks.launching.rank import SPEED
from tasks.training.job import Job
from tests.tasks.cluster import wait_for
from tests.tasks.launching.jobs import make_job
from tests.tasks.launching.ranks import is_rank

#: Of a package whose other modules are those of the installed one.
EXTENDED = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)"
#: 464 steps, which take seconds.
LONG_ENOUGH: dict[str, Any] = {"ranks": "auto", "epochs": 58, "evaluations": 1, "patience": 1}


@pytest.fixture(autouse=True)
def two_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where joblib's own variable stands for a quota, and the cache folder is empty."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    monkeypatch.setenv("SPARK_BERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOMP_SPINCOUNT", SPINS)  # as on the command line
    caplog.set_level(logging.INFO)


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts are compared, however short the training is."""
    monkeypatch.setattr(layouts, "LONG", 0)
    monkeypatch.setattr(layouts, "SHARE", 1e9)


def summary(job: Job) -> dict[str, Any]:
    return json.loads((job.output / "training.json").read_text())  # type: ignore[no-any-return]


def settle(job: Job, root: Path) -> Job:
    (root / "scratch").mkdir()
    return layouts.with_ranks(job, 0, root / "scratch", _train_apart)


def fail(job: Job, folder: Path, ranks: int) -> None:
    raise AssertionError(f"{ranks} ranks are measured")


def remembered(root: Path) -> list[Path]:
    return sorted((root / "cache").rglob("*.json"))


@pytest.mark.usefixtures("worth_it")
def test_the_fastest_layout_is_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "GAIN", 1)
    job = make_job(tmp_path, **LONG_ENOUGH)
    settled = settle(job, tmp_path)
    (file,) = remembered(tmp_path)
    speeds = layouts.recall(file)
    assert set(speeds) == {1, 2} and speeds[settled.ranks] == max(speeds.values())
    assert settled.layout.startswith(f"1 x 2: {speeds[1]:.0f} rows/s, 2 x 1: {speeds[2]:.0f} rows/s, measured in")
    assert not list(job.output.iterdir()) and not list((tmp_path / "scratch").iterdir())

    for ranks in (1, 2):
        file.write_text(json.dumps({ranks: 101.0, 3 - ranks: 100.0}))
        assert layouts.with_ranks(job, 0, tmp_path, fail).ranks == ranks
    launch(job)
    assert summary(job)["layout"] == "1 x 2: 100 rows/s, 2 x 1: 101 rows/s, measured before"
    assert summary(job)["ranks"] == 2


@pytest.mark.usefixtures("worth_it")
def test_what_a_shorter_training_has_measured_is_not_measured_again(tmp_path: Path) -> None:
    measured = []

    def run(job: Job, folder: Path, ranks: int) -> None:
        measured.append(ranks)
        (folder / SPEED).write_text(str(100.0 * ranks))

    job = make_job(tmp_path, **LONG_ENOUGH)
    layouts.with_ranks(job, 0, tmp_path, run)
    (file,) = remembered(tmp_path)
    file.write_text(json.dumps({1: 150.0}))
    settled = layouts.with_ranks(job, 0, tmp_path, run)
    assert measured == [1, 2, 2] and layouts.recall(file) == {1: 150.0, 2: 200.0}
    assert settled.ranks == 2 and settled.layout.startswith("1 x 2: 150 rows/s, 2 x 1: 200 rows/s, measured in")


def test_a_layout_that_fails_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Horovod's own library cannot be loaded."""
    (tmp_path / "broken" / "horovod" / "torch").mkdir(parents=True)
    (tmp_path / "broken" / "horovod" / "__init__.py").write_text(EXTENDED)
    (tmp_path / "broken" / "horovod" / "torch" / "__init__.py").write_text("raise ImportError('no libhorovod')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    monkeypatch.setattr(layouts, "candidates", lambda possible: [2])
    settled = settle(make_job(tmp_path, **LONG_ENOUGH), tmp_path)
    assert re.search("2 x 1 is not considered: .*no libhorovod", caplog.text, re.DOTALL)
    assert settled.ranks == 1 and not remembered(tmp_path)


def test_a_short_training_has_one_rank_and_compares_nothing(tmp_path: Path) -> None:
    few = make_job(tmp_path, **LONG_ENOUGH | {"epochs": 1})
    launch(few)
    assert summary(few)["ranks"] == 1 and "layout" not in summary(few) and not remembered(tmp_path)
    short = settle(make_job(tmp_path, **LONG_ENOUGH), tmp_path)
    assert short.ranks == 1 and set(layouts.recall(remembered(tmp_path)[0])) == {1}
    assert short.layout.endswith("rows/s; the training is too short to measure other layouts")
    assert layouts.with_ranks(make_job(tmp_path, **LONG_ENOUGH), 0, tmp_path, fail).layout == short.layout


@pytest.mark.usefixtures("worth_it")
def test_a_training_goes_on_with_the_ranks_of_its_checkpoint(tmp_path: Path) -> None:
    job = make_job(tmp_path, **LONG_ENOUGH)
    checkpoint = job.folder / "step-9"
    checkpoint.mkdir()
    (checkpoint / "values.json").write_text(json.dumps({"hosts": [2]}))
    settled = layouts.with_ranks(job, 0, tmp_path, fail)
    assert (settled.ranks, settled.layout) == (2, "as many as have written the checkpoint")


def test_a_stop_ends_the_measurement_and_leaves_no_checkpoint(tmp_path: Path) -> None:
    job = make_job(tmp_path, **LONG_ENOUGH)

    def stop() -> None:
        wait_for(lambda: any(is_rank(child, 0) for child in psutil.Process().children(recursive=True)))
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Stopped, match="run the stage again"):
        launch(job)
    thread.join()
    assert list(job.folder.iterdir()) == [] and not remembered(tmp_path)


@pytest.mark.parametrize("content", ["", "[1]", '{"1": "fast"}', '{"one": 1}', '{"1": null}', '{"1": 0}', '{"1": NaN}'])
def test_unreadable_speeds_count_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "speeds.json").write_text(content)
    assert layouts.recall(tmp_path / "speeds.json") == {}


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_text("a file in the place of the folder")
    layouts.remember(tmp_path / "cache" / "layouts" / "speeds.json", {1: 10.0})
    assert "measured again next time" in caplog.text


@pytest.mark.parametrize(
    ("cores", "measured"), [(2, [1, 2]), (4, [1, 2, 4]), (8, [1, 2, 4]), (16, [4, 2, 8]), (64, [4, 8, 2])]
)
def test_few_layouts_are_measured_and_on_many_cores_not_one_rank(
    cores: int, measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "threads", lambda ranks: cores // ranks)
    monkeypatch.setattr(layouts, "_free_memory", lambda: 1e12)
    assert layouts.candidates(layouts.fitting(make_job(tmp_path, batch_size=32))) == measured


def test_layouts_divide_cores_and_batches_and_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "threads", lambda ranks: 12 // ranks)
    monkeypatch.setattr(layouts, "_free_memory", lambda: 1e12)
    job = make_job(tmp_path)
    assert layouts.fitting(job) == [1, 2, 4]  # of the divisors of 12, those of the batch size 8
    batching = job.batching.model_copy(update={"kind": "tokens"})
    job = replace(job, experiment=job.experiment.model_copy(update={"batching": batching}))
    assert layouts.fitting(job) == [1, 2, 3, 4, 6, 12]
    monkeypatch.setattr(layouts, "_free_memory", lambda: 2e9)
    assert layouts.fitting(job) == [1, 2, 3]
