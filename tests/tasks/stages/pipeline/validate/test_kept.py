"""Columns of the test file that are kept for its predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.experiment import Experiment
from include.named_experiments import build
from include.stages import BadInput
from tasks.stages.pipeline.validate.kept_columns import kept_columns
from tests.tasks.stages.pipeline.validate.made_up import lines, validate

ROWS = np.array([0, 2])


def own(folder: Path, *keep: str, test: str = "test.csv") -> Experiment:
    """A task of one's own in this folder; nothing is read yet."""
    data: dict[str, Any] = {"task": "classification", "source": "files", "path": str(folder), "labels": ["no", "yes"]}
    return build({"data": data | {"train": "train.csv", "dev": "dev.csv", "test": test, "keep": keep}}, "test")


def test_validate_keeps_them_under_their_rows(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        rows = "".join(f"{split} number {row},{('no', 'yes')[row % 2]},{split[0]}{row}\n" for row in range(20))
        (tmp_path / f"{split}.csv").write_text(f"sentence,label,id\n{rows}")
    (tmp_path / "test.csv").write_text('id,sentence,note\n007,one text,"a, ""b""\nc"\n8,another text,\n')
    artifact = validate(tmp_path, own(tmp_path, "note", "id"))
    assert artifact.manifest.exit_code == 0
    kept = pq.read_table(artifact.path / "kept-test.parquet").to_pydict()
    assert kept == {"row": [0, 1], "note": ['a, "b"\nc', ""], "id": ["007", "8"]}
    dev = pq.read_table(artifact.path / "kept-dev.parquet").to_pydict()
    assert dev == {"row": list(range(20)), "id": [f"d{row}" for row in range(20)]}  # it has no column note
    assert pq.read_table(artifact.path / "test.parquet").column_names == ["row", "line", "sentence1", "label"]


@pytest.mark.parametrize("engine", ["process", "spark"])
def test_rows_and_columns_of_several_files_are_found_in_theirs(tmp_path: Path, spark: object, engine: str) -> None:
    head = "sentence,label,id\n"
    for part, texts in enumerate((["good one", "again", "bad one"], ["", "good two"], ["bad\nthree", "good three"])):
        rows = [f'"{text}",{("no", "yes")["good" in text]},{part}{row}\n' for row, text in enumerate(texts)]
        (tmp_path / f"train-{part}.csv").write_text(head + "".join(rows) + ",,\n" * part)
        (tmp_path / f"dev-{part}.csv").write_text(head + f"dev {part},no,d{part}\nother {part},yes,e{part}\n,,\n")
        (tmp_path / f"test-{part}.csv").write_text(f"id,sentence\nt{part},new {part}\n,\n")
    (tmp_path / "dev-1.csv").write_text(head + "Again,no,d1\n")
    experiment = own(tmp_path, "id", test="test-*.csv")
    named = experiment.data.model_copy(update={"train": "train-*.csv", "dev": "dev-*.csv"})
    limits = experiment.validation.model_copy(update={"max_quarantine": 0.5, "max_overlap": 0.5})
    runtime = experiment.runtime.model_copy(update={"engine": engine})
    artifact = validate(
        tmp_path, experiment.model_copy(update={"data": named, "validation": limits, "runtime": runtime})
    )
    train = pq.read_table(artifact.path / "train.parquet").to_pydict()
    assert (train["row"], train["line"]) == ([0, 2, 4, 5, 6], [2, 4, 3, 2, 4])
    (quarantined,), (overlap,) = (lines(artifact.path / f"{name}.jsonl") for name in ("quarantine", "overlap"))
    assert (quarantined["file"], quarantined["line"]) == (str(tmp_path / "train-1.csv"), 2)
    assert (overlap["file"], overlap["line"], overlap["also_in"]) == (str(tmp_path / "train-0.csv"), 3, ["dev"])
    assert any("(train-1.csv line 2: empty text)" in warning for warning in artifact.manifest.result["warnings"])
    kept = {split: pq.read_table(artifact.path / f"kept-{split}.parquet").to_pydict() for split in ("dev", "test")}
    assert kept["test"] == {"row": [0, 1, 2], "id": ["t0", "t1", "t2"]}
    assert kept["dev"] == {"row": [0, 1, 2, 3, 4], "id": ["d0", "e0", "d1", "d2", "e2"]}


def test_parts_without_a_value_in_a_column_keep_its_type(tmp_path: Path) -> None:
    parts = [pa.table({"id": pa.nulls(1)}), pa.table({"id": [7]}), pa.table({"id": ["x"]})]
    files = [tmp_path / f"{at}.parquet" for at in range(3)]
    for file, part in zip(files, parts, strict=True):
        pq.write_table(part, file)
    assert kept_columns(files[:2], ["id"], np.arange(2)).to_pydict() == {"id": [None, 7]}
    with pytest.raises(BadInput, match=r"0\.parquet: the columns of data\.keep have other types in other files"):
        kept_columns(files, ["id"], np.arange(3))


def test_out_of_parquet_they_keep_their_types(tmp_path: Path) -> None:
    columns = {"id": pa.array([1, None, 3], pa.int32()), "a.b": pa.array(["x", "y", None]).dictionary_encode()}
    pq.write_table(pa.table(columns | {"rest": [0, 0, 0]}), tmp_path / "test.parquet")
    found = kept_columns([tmp_path / "test.parquet"], ["a.b", "id"], ROWS)
    assert found.column_names == ["a.b", "id"] and found.schema.field("id").type == pa.int32()
    assert (found["a.b"].to_pylist(), found["id"].to_pylist()) == (["x", None], [1, 3])


@pytest.mark.parametrize("file", ["test.csv", "test.tsv", "test.parquet"])
def test_a_missing_column_is_named_with_those_there_are(file: str, tmp_path: Path) -> None:
    path = tmp_path / file
    if file == "test.parquet":
        pq.write_table(pa.table({"name": ["a"], "sentence": ["b"]}), path)
    else:
        path.write_text("name,sentence\na,b\n".replace(",", "\t" if file == "test.tsv" else ","))
    with pytest.raises(
        BadInput, match=r"no column 'id', which data\.keep names; found: name, sentence\. data\.keep must name"
    ):
        kept_columns([path], ["id"], ROWS)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n{"id": "c\\u0000"}\n')
    with pytest.raises(BadInput, match=r"test\.jsonl line 3: the columns of data\.keep \(id\) .*contains a NUL byte"):
        kept_columns([tmp_path / "test.jsonl"], ["id"], ROWS)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (("id", "id"), "names 'id' twice"),
        (("row",), "names 'row', but the predictions have a column of that name: rename it"),
        (("Prediction",), "the predictions have a column of that name"),
        (("predicted_label",), "the predictions have a column of that name"),
        (("probability:yes",), "the predictions have a column of that name"),
    ],
)
def test_names_that_would_clash_are_refused(keep: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        own(tmp_path, *keep)


def test_only_files_of_ones_own_have_columns_to_keep() -> None:
    with pytest.raises(BadInput, match=r"data\.keep .* works only with .* delta and iceberg, not with glue"):
        build({"data": {"task": "SST-2", "source": "glue", "path": "glue", "keep": ["id"]}}, "test")
