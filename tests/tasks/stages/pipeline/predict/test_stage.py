"""The stage: predictions equal those of one process, however Spark cuts the rows."""

from __future__ import annotations

import csv
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyspark.sql import SparkSession

from include.artifacts import Artifact
from include.experiment import Experiment
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import copy_tokenizer, load_pretrained
from tasks.encoder.models import predict_logits
from tasks.encoder.spec import HeadSpec
from tasks.inference.labeler import Labeler
from tasks.inference.parts import progress
from tasks.inference.trained_model import TrainedModel
from tasks.spark import Executors
from tasks.stages.pipeline.export.stage import Member
from tasks.stages.pipeline.predict.label import predict
from tasks.stages.pipeline.predict.stage import run
from tasks.staging import Staging
from tasks.workers import ThisProcess, Workers
from tests.tasks.contexts import surroundings
from tests.tasks.stages.pipeline.package.packages import doubt, unchanged_package

ROWS = 300


def experiment(task: str, **prediction: Any) -> Experiment:
    return build({"data": {"task": task, "source": "glue", "path": "unused"}, "prediction": prediction}, "test")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder test/ of preprocess: rows of 3 to 60 ids in two parts, numbered with gaps."""
    folder = tmp_path_factory.mktemp("preprocess") / "test"
    folder.mkdir()
    random = np.random.default_rng(0)
    ids = [random.integers(2, 30, size=random.integers(3, 60)).tolist() for _ in range(ROWS)]
    lengths = pa.array([len(row) for row in ids], pa.uint16())
    columns = {
        "row": pa.array(range(0, 3 * ROWS, 3), pa.int64()), "label": pa.nulls(ROWS, pa.int64()), "length": lengths,
        "first": lengths, "input_ids": pa.array(ids, pa.list_(pa.uint8())), "sentence1": pa.array(["text"] * ROWS),
    }  # fmt: skip
    table = pa.table(columns)
    for number, part in enumerate((table[:100], table[100:])):
        with pa.ipc.new_file(folder / f"part-{number:05d}.arrow", table.schema) as writer:
            writer.write_table(part)
    return folder


def packaged(folder: Path, encoder: Path, spec: HeadSpec) -> Path:
    """An artifact of package: the encoder under a head wide enough for predictions to differ, in PyTorch."""
    torch.manual_seed(0)
    model = load_pretrained(encoder, spec)
    torch.nn.init.normal_(model.output_layer.weight, std=1.0)
    made = folder / "made"
    made.mkdir()
    model.save(made)
    copy_tokenizer(encoder, made, model, spec.max_length)
    unchanged_package(folder, made)
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    spec = HeadSpec("classification", 2, label_names=("negative", "positive"))
    return packaged(tmp_path_factory.mktemp("package"), encoder, spec)


def in_one_process(model: Path, split: Path) -> Any:
    from tasks.encoder.loading import load_trained

    return predict_logits(load_trained(model), TokenTable.open(split))


def predicted(workers: Workers, package: Path, wanted: Experiment, split: Path, folder: Path) -> pa.Table:
    model = TrainedModel.of(package, wanted.prediction)
    (folder / "parts").mkdir()
    return predict(workers, Labeler.of(workers.staged, model, wanted.prediction), split, folder / "parts")


def assert_probabilities(made: pa.Table, expected: torch.Tensor) -> None:
    for at, name in enumerate(("probability:negative", "probability:positive")):
        np.testing.assert_allclose(made[name].to_pylist(), expected[:, at], atol=1e-5)


@pytest.mark.parametrize("batching", ["tiers", "tokens"])
def test_predictions_are_those_of_one_process(
    spark: SparkSession, staged: Staging, classifier: Path, split: Path, tmp_path: Path, batching: str
) -> None:
    wanted = experiment("SST-2", batching=batching, batch_tokens=512)
    made = predicted(Executors(spark, staged), classifier, wanted, split, tmp_path)
    (tmp_path / "alone").mkdir()
    assert predicted(ThisProcess(), classifier, wanted, split, tmp_path / "alone").equals(made)
    logits = torch.from_numpy(in_one_process(classifier / "model", split))
    chances = logits.double().softmax(dim=1)
    assert made["row"].to_pylist() == list(range(0, 3 * ROWS, 3))
    assert made["prediction"].to_pylist() == chances.argmax(dim=1).tolist()
    assert len(set(made["prediction"].to_pylist())) == 2
    assert_probabilities(made, chances)


def test_the_windows_of_a_document_are_predicted_together(classifier: Path, split: Path, tmp_path: Path) -> None:
    read = [pa.ipc.open_file(pa.memory_map(str(file))).read_all() for file in sorted(split.glob("part-*"))]
    table = pa.concat_tables(read)
    rows = np.sort(np.random.default_rng(1).integers(0, 80, ROWS))
    (tmp_path / "test").mkdir()
    with pa.ipc.new_file(tmp_path / "test" / "part-00000.arrow", table.schema) as writer:
        writer.write_table(table.set_column(0, "row", pa.array(rows)))
    made = predicted(ThisProcess(), classifier, experiment("SST-2"), tmp_path / "test", tmp_path)
    documents = np.unique(rows)
    every = in_one_process(classifier / "model", split)
    logits = np.stack([every[rows == row].mean(0) for row in documents])
    np.testing.assert_allclose(in_one_process(classifier / "model", tmp_path / "test"), logits, atol=1e-5)
    assert made["row"].to_pylist() == documents.tolist()
    chances = torch.from_numpy(logits).double().softmax(dim=1)
    assert_probabilities(made, chances)


def stage(
    output: Path,
    task: str,
    package: Artifact,
    preprocess: Artifact,
    validate: Artifact,
    engine: str = "auto",
    **data: Any,
) -> dict[str, Any]:
    """The stage's result; its files lie in the output."""
    output.mkdir()
    run_of = Run(output.parent / "runs" / "one")
    values = {"data": {"task": task, "source": "glue", "path": "unused", **data}, "runtime": {"engine": engine}}
    wanted = build(values, "test")
    inputs = {"package": package, "preprocess": preprocess, "validate": validate}
    return run(surroundings(wanted, run_of, inputs, output)).result


def read_csv(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, read by another library than it was written by."""
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_stage_writes_classes(
    classifier: Path, split: Path, artifact: Callable[[Path, str], Artifact], tmp_path: Path
) -> None:
    inputs = artifact(classifier, "package"), artifact(split.parent, "preprocess"), artifact(tmp_path, "validate")
    result = stage(tmp_path / "out", "SST-2", *inputs)
    table = pq.read_table(tmp_path / "out" / "predictions.parquet")
    chances = ("probability", "probability:negative", "probability:positive")
    columns = {"row": pa.int64(), "prediction": pa.int64(), "predicted_label": pa.string()}
    assert table.schema.equals(pa.schema(columns | dict.fromkeys(chances, pa.float64())))
    assert result["rows"] == table.num_rows == ROWS and result["form"] == "torch-fp32"
    assert result["label_counts"]["positive"] == sum(table["prediction"].to_pylist())
    assert sum(result["label_counts"].values()) == ROWS
    assert result["partitions"] == 2 and result["rows_per_second"] > 0
    assert result["files"] == {"predictions": "predictions.csv", "parquet": "predictions.parquet"}
    named = [("negative", "positive")[label] for label in table["prediction"].to_pylist()]
    assert table["predicted_label"].to_pylist() == named
    for row in table.to_pylist():
        assert row["probability:negative"] + row["probability:positive"] == pytest.approx(1)
        assert row["probability"] == max(row["probability:negative"], row["probability:positive"])
    written = read_csv(tmp_path / "out" / "predictions.csv")
    assert [row["predicted_label"] for row in written] == named
    assert [float(row["probability"]) for row in written] == table["probability"].to_pylist()


@pytest.mark.usefixtures("spark")
def test_executors_write_the_same_files_as_one_process(
    classifier: Path, split: Path, artifact: Callable[[Path, str], Artifact], tmp_path: Path
) -> None:
    inputs = artifact(classifier, "package"), artifact(split.parent, "preprocess"), artifact(tmp_path, "validate")
    results, files = [], []
    for engine in ("process", "spark"):
        result = stage(tmp_path / engine, "SST-2", *inputs, engine=engine)
        results.append({name: value for name, value in result.items() if name != "rows_per_second"})
        files.append({file.name: file.read_bytes() for file in (tmp_path / engine).iterdir()})
    assert results[0] == results[1] and len(files[0]) == 2 and files[0] == files[1]


def test_a_submission_is_complete_where_the_model_abstains(
    classifier: Path, split: Path, artifact: Callable[[Path, str], Artifact], tmp_path: Path
) -> None:
    package, output, validate = tmp_path / "package", tmp_path / "out", tmp_path / "validate"
    shutil.copytree(classifier, package)
    doubt(package, 0.7)
    wanted = experiment("SST-2", max_risk=0.05)
    inputs = {"package": artifact(package, "package"), "preprocess": artifact(split.parent, "preprocess")}
    output.mkdir()
    outcome = run(surroundings(wanted, Run(tmp_path / "runs/one"), inputs, output))
    table = pq.read_table(output / "predictions.parquet")
    answered = table["abstained"].null_count
    assert (
        0
        < answered
        == outcome.result["answered"]
        < ROWS
        == sum(outcome.result["label_counts"].values()) + (table["predicted_label"].null_count)
    )
    assert [row["predicted_label"] for row in read_csv(output / "predictions.csv")].count("") == ROWS - answered
    validate.mkdir()
    (validate / "quarantine.jsonl").touch()
    pq.write_table(table.select(["row"]), validate / "test.parquet")
    done = artifact(output, "predict")
    done = replace(done, manifest=replace(done.manifest, result=outcome.result))
    member = Member("", wanted.task, artifact(validate, "validate"), done)
    positive = table["probability:positive"].to_numpy() > table["probability:negative"].to_numpy()
    assert member.sheet().values == positive.astype(int).astype(str).tolist() and member.abstained == ROWS - answered


AWKWARD = ['a, "b"', "line\nend", "007", "", "好😀", "=1+1"]


def test_kept_columns_stand_beside_the_predictions(
    encoder: Path, split: Path, artifact: Callable[[Path, str], Artifact], tmp_path: Path
) -> None:
    rows = list(range(0, 3 * ROWS, 3))
    texts, numbers = [AWKWARD[row % 6] + str(row) for row in rows], [None if row % 2 else row for row in rows]
    kept = pa.table({"row": rows[::-1], "id": texts[::-1], "label": pa.array(numbers[::-1], pa.int32())})
    pq.write_table(kept, tmp_path / "kept-test.parquet")
    own: dict[str, Any] = {"source": "files", "labels": ["no, never", "yes"], "keep": ["id", "label"]}
    (tmp_path / "package").mkdir()
    package = packaged(tmp_path / "package", encoder, HeadSpec("classification", 2, label_names=("no, never", "yes")))
    inputs = artifact(package, "package"), artifact(split.parent, "preprocess"), artifact(tmp_path, "validate")
    stage(tmp_path / "out", "classification", *inputs, **own)
    table = pq.read_table(tmp_path / "out" / "predictions.parquet")
    assert table.column_names[:3] == ["row", "id", "label"] and table.schema.field("label").type == pa.int32()
    assert (table["id"].to_pylist(), table["label"].to_pylist()) == (texts, numbers)
    written = read_csv(tmp_path / "out" / "predictions.csv")
    assert [row["id"] for row in written] == texts
    assert [row["label"] for row in written] == ["" if number is None else str(number) for number in numbers]
    assert "probability:no, never" in written[0]


def test_kept_columns_of_other_rows_are_refused(
    classifier: Path, split: Path, artifact: Callable[[Path, str], Artifact], tmp_path: Path
) -> None:
    pq.write_table(pa.table({"row": range(ROWS), "id": range(ROWS)}), tmp_path / "kept-test.parquet")
    inputs = artifact(classifier, "package"), artifact(split.parent, "preprocess"), artifact(tmp_path, "validate")
    with pytest.raises(BadInput, match=r"kept-test\.parquet has other rows than the test split: run validate again"):
        stage(tmp_path / "out", "classification", *inputs, source="files", labels=["no", "yes"], keep=["id"])


def test_the_stage_writes_scores_as_they_are(
    encoder: Path,
    split: Path,
    artifact: Callable[[Path, str], Artifact],
    tmp_path: Path,
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    packaged(package, encoder, HeadSpec("regression", 1, score_range=(0.0, 5.0)))
    inputs = artifact(package, "package"), artifact(split.parent, "preprocess"), artifact(tmp_path, "validate")
    result = stage(tmp_path / "out", "STS-B", *inputs)
    table = pq.read_table(tmp_path / "out" / "predictions.parquet")
    scores = in_one_process(package / "model", split)[:, 0]
    np.testing.assert_allclose(table["prediction"].to_numpy(), scores, atol=1e-4)
    assert table.column_names == ["row", "prediction"]
    assert scores.min() < 0 or scores.max() > 5  # nothing is clipped here
    assert result["score_mean"] == pytest.approx(scores.mean(), abs=1e-3)


def test_progress_is_told_once_for_each_number(caplog: pytest.LogCaptureFixture) -> None:
    answers: Iterator[int | OSError] = iter([0, 0, 40, 40, OSError("no route"), 40, 90])
    asked = Event()

    def done() -> int:
        answer = next(answers, None)
        if answer is None:
            asked.set()
            return 90
        if isinstance(answer, OSError):
            raise answer
        return answer

    with caplog.at_level(logging.INFO), progress(done, 90, seconds=0.001):
        assert asked.wait(10)
    assert [record.getMessage() for record in caplog.records] == [
        "labeled 40 of 90 parts",
        "no route; this is tried again",
        "labeled 90 of 90 parts",
    ]
