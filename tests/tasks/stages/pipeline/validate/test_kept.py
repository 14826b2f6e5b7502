"""Columns of the test file that are kept for its predictions."""

from __future__ import annotations

import uuid
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
from tests.tasks.stages.pipeline.validate.made_up import validate

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


def test_out_of_parquet_they_keep_their_types(tmp_path: Path) -> None:
    columns = {"id": pa.array([1, None, 3], pa.int32()), "a.b": pa.array(["x", "y", None]).dictionary_encode()}
    pq.write_table(pa.table(columns | {"rest": [0, 0, 0]}), tmp_path / "test.parquet")
    found = kept_columns(tmp_path / "test.parquet", ["a.b", "id"], ROWS)
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
        kept_columns(path, ["id"], ROWS)


@pytest.mark.parametrize(
    ("value", "holds"),
    [(["a", "b"], "list"), (uuid.UUID(int=2**127).bytes, "binary, which cannot be written as CSV")],
    ids=["list", "uuid"],
)
def test_what_a_csv_cannot_hold_is_refused(value: object, holds: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"tags": [value]}), tmp_path / "test.parquet")
    with pytest.raises(BadInput, match=f"names the column 'tags' of type {holds}"):
        kept_columns(tmp_path / "test.parquet", ["tags"], ROWS)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n{"id": "c\\u0000"}\n')
    with pytest.raises(BadInput, match=r"test\.jsonl line 3: the columns of data\.keep \(id\) .*contains a NUL byte"):
        kept_columns(tmp_path / "test.jsonl", ["id"], ROWS)


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
    with pytest.raises(BadInput, match=r"data\.keep .* works only with data\.source files, not with glue"):
        build({"data": {"task": "SST-2", "source": "glue", "path": "glue", "keep": ["id"]}}, "test")
