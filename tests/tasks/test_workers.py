"""Who works on the rows of a stage: this process, without Spark, where they are few."""

from __future__ import annotations

import subprocess
import sys

import pytest

from include.named_experiments import build
from include.stages import BadInput
from tasks.launching.launch import ROOT
from tasks.workers import SPARK_FROM, ThisProcess, is_for_spark, partitions


def test_partitions_of_five_thousand_and_four_at_least() -> None:
    assert [partitions(rows) for rows in (1, 19_999, 25_000, 67_349)] == [4, 4, 5, 13]


@pytest.mark.parametrize("stage", SPARK_FROM)
def test_spark_works_on_many_rows_unless_the_experiment_says_who_works(stage: str) -> None:
    for engine, chosen in (("auto", (False, True)), ("process", (False, False)), ("spark", (True, True))):
        for master in ("local[2]", "spark://host:7077"):
            experiment = build({"runtime": {"engine": engine, "spark_master": master}}, "test")
            rows = SPARK_FROM[stage] - 1, SPARK_FROM[stage]
            assert tuple(is_for_spark(experiment, stage, some) for some in rows) == chosen


def test_the_first_piece_that_fails_ends_the_work() -> None:
    done: list[int] = []

    def work(number: int) -> int:
        if number == 2:
            raise BadInput("the model is damaged: train again")
        done.append(number)
        return number * number

    assert ThisProcess().map(work, 2) == [0, 1]
    with pytest.raises(BadInput, match="the model is damaged"):
        ThisProcess().map(work, 5)
    assert done == [0, 1, 0, 1]


@pytest.mark.parametrize("stage", ["pipeline.preprocess.splits", "pipeline.predict.label", "labeling.score.files"])
def test_a_stage_imports_spark_and_pytorch_only_if_it_needs_them(stage: str) -> None:
    heavy = {"pyspark", "torch", "transformers", "pandas", "sklearn", "mlflow", "great_expectations", "openvino"}
    program = f"import sys, tasks.stages.{stage}; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
