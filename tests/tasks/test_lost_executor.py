"""An executor is killed while each stage works on a cluster: the artifacts are those of an undisturbed local run."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from include.artifacts import Files
from include.named_experiments import load
from include.runs import Run
from tasks.runner import run_stage
from tests.tasks.all_stages import named_rows, run_all_stages
from tests.tasks.cluster import Cluster
from tests.tasks.encoder.samples import tiny_encoder

#: What only executors write in each stage, at least four of them; in validate before rows are exchanged, and after.
WRITTEN = {
    "validate": (r"train-part-\d+", r"train\.parquet/part-\d+"),
    "preprocess": (r"part-\d+\.arrow",),
    "predict": (r"part-\d+\.parquet",),
    "score": (r"part-\d+\.parquet",),
}
DRIVER = """
import sys
from pathlib import Path
from include.named_experiments import load
from include.runs import Run
from tasks.runner import run_stage
from tasks.spark import session

experiment, folder, master, *stages = sys.argv[1:]
with session(load(experiment, [f"runtime.spark_master={master}"]), "test"):
    for stage in stages:
        print(stage, flush=True)
        run_stage(stage, load(experiment), Run(Path(folder)))
"""


NAMES = {"sentence": "sentence", "label": "label"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Run, str]:
    """A run of all stages and of score, and its experiment as JSON."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for number in range(4):
        with (folder / f"train-{number}.tsv").open("w") as file:
            file.writelines(
                "\t".join(row.values()) + "\n" for row in [NAMES, *named_rows(100, number), {"text": "no label"}]
            )
    run = run_all_stages(folder, {"dev": named_rows(80, seed=4), "test": named_rows(400, seed=5)}, {
        "data": {"task": "classification", "labels": ["bad", "good"], "train": "train-*.tsv"},
        "runtime": {"engine": "spark"},
        "model": {"name": str(tiny_encoder(folder / "encoder"))},
        "preprocessing": {"max_length": 24},
        "training": {"epochs": 1},
        "gate": {"accuracy": 0, "beat_baseline": False},
    })  # fmt: skip
    scoring = {"input": str(folder / "test.csv"), "model": str(run.artifact("package").path), "text": "sentence"}
    experiment = json.dumps({**run.record()["experiment"], "scoring": scoring})
    run_stage("score", load(experiment), run)
    return run, experiment


def test_the_artifacts_are_the_same(cluster: Cluster, undisturbed: tuple[Run, str], tmp_path: Path) -> None:
    run, experiment = undisturbed
    home = tmp_path / "home"
    shutil.copytree(run.folder.parents[1], home)
    for stage in WRITTEN:
        shutil.rmtree(home / "artifacts" / stage)
    again = Run(home / "runs" / "one")
    (tmp_path / "driver.py").write_text(DRIVER)  # Great Expectations' import of pyspark.sql.connect ends a python -c
    command = [sys.executable, str(tmp_path / "driver.py"), experiment, str(again.folder), cluster.master, *WRITTEN]
    driver = cluster.start(command)
    assert driver.stdout is not None
    for stage, files in WRITTEN.items():
        assert driver.stdout.readline() == f"{stage}\n", driver.communicate()[1]
        for file in files:
            cluster.kill_executor(file)
    errors = driver.communicate()[1]
    assert driver.returncode == 0, errors
    if cluster.machines.init:  # else it is not known which executor has stored a file, and an idle one may be killed
        assert errors.count("Lost executor") == sum(map(len, WRITTEN.values()))
    assert {stage: digests(again, stage) for stage in WRITTEN} == {stage: digests(run, stage) for stage in WRITTEN}


def digests(run: Run, stage: str) -> Files:
    """The files of an artifact. Only the pages of Great Expectations say when they were made."""
    return {
        name: file for name, file in run.artifact(stage).manifest.files.items() if not name.startswith("data_docs/")
    }
