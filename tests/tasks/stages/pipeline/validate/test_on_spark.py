"""Executors make of the data what one process makes of them: the same tables, lists, counts, remarks and errors."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame

from include.experiment import Experiment
from include.glue import SPLITS
from include.named_experiments import build
from include.stages import BadInput
from tasks import sources
from tasks.sources import Source, pieces
from tasks.sources.published import BundledCorpus
from tasks.stages.pipeline.validate import on_spark, one_process
from tasks.stages.pipeline.validate.tables import Tables
from tasks.staging import Staging

pytestmark = pytest.mark.usefixtures("spark")
DIRT = [
    b"few",
    b"caf\xe9\t1",
    b"a\0b\t0",
    b"",
    b"\t",
    b" \t1",
    b"odd\t7",
    b"three\tfields\t1",
    "\u00e9t\u00e9\t0".encode(),
]


def own(path: Path, **data: Any) -> Experiment:
    return build({"data": {"task": "SST-2", "source": "files", "path": str(path), **data}}, "mine")


def found(tables: AbstractContextManager[Tables], source: Source, output: Path) -> dict[str, Any]:
    """What a reading has made, or how it has failed."""
    try:
        with tables as made:
            frames = [
                frame.orderBy("row").toArrow().to_pandas() if isinstance(frame, DataFrame) else frame
                for frame in made.frames.values()
            ]
            return {
                "summaries": made.summaries,
                "rows": made.rows,
                "lists": [(output / f"{name}.jsonl").read_text() for name in ("quarantine", "overlap")],
                "remarks": [source.remarks(split) for split in SPLITS],
                "frames": [*frames, *(pd.read_parquet(output / f"{split}.parquet") for split in SPLITS)],
            }
    except BadInput as error:
        return {"error": str(error)}


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Experiment, int], dict[str, Any]]:
    """Read the data with both engines, in pieces of so many bytes, and return what both have found."""

    def read(experiment: Experiment, size: int) -> dict[str, Any]:
        monkeypatch.setattr(pieces, "SIZE", size)
        places = {}
        for name in ("one", "spark"):
            places[name] = tmp_path / f"out-{name}-{size}", tmp_path / f"scratch-{name}-{size}"
            for folder in places[name]:
                folder.mkdir()
        output, scratch = places["one"]
        source = sources.open_source(experiment)
        alone = found(one_process.validated(experiment.task, source, scratch, output), source, output)
        output, scratch = places["spark"]
        source = sources.open_source(experiment)
        together = found(on_spark.validated(experiment, source, scratch, output), source, output)
        for mine, other in zip(alone.pop("frames", ()), together.pop("frames", ()), strict=True):
            pd.testing.assert_frame_equal(other, mine)
        assert together == alone
        return alone

    return read


def shuffled(rows: int) -> list[tuple[str, int]]:
    """Some texts with their labels, many of which occur twice, some with another label."""
    chance = random.Random(0)
    return [(f"Text number {chance.randrange(rows // 2)}{' .!'[row % 3]}", chance.randrange(2)) for row in range(rows)]


@pytest.mark.parametrize("store", ["", "with_store"])
def test_dirty_lines(
    tmp_path: Path, both: Callable[..., dict[str, Any]], request: pytest.FixtureRequest, store: str
) -> None:
    if store:
        request.getfixturevalue(store)
    (tmp_path / "data").mkdir()
    rows = [f"{text}\t{label}".encode() for text, label in shuffled(400)]
    random.Random(1).shuffle(dirty := rows[:300] + DIRT * 3)
    (tmp_path / "data/train-1.tsv").write_bytes(
        b"\xef\xbb\xbf" + b"\r\n".join([b"sentence\tlabel", *dirty, b"\t", b""])
    )
    (tmp_path / "data/train-2.tsv").write_bytes(b"\n".join([b"sentence\tlabel", *rows[300:], b"\t\t", b"", b"\t"]))
    (tmp_path / "data/dev.csv").write_text(
        "label,sentence,\n" + "".join(f"{label},{text},\r" for text, label in shuffled(40))
    )
    (tmp_path / "data/test.jsonl").write_text(
        "\n".join(json.dumps({"sentence": text}) for text, _ in shuffled(30)) + "\n\n3\n"
    )
    for end in ("gz", "zst"):
        packed = b"\n".join([b"sentence\tlabel", *DIRT, f"packed in {end}\t1".encode(), b"\t", b""])
        with pa.output_stream(tmp_path / f"data/train-3.tsv.{end}", compression="detect") as stream:
            stream.write(packed)
    made = both(own(tmp_path / "data", train="train-*"), 2000)
    assert made["rows"]["train"] > 100 and made["lists"][1] and len(made["lists"][0].splitlines()) > 20


@pytest.mark.parametrize("rows", [20_000, pytest.param(670_000, marks=pytest.mark.long)])
def test_many_rows_with_planted_dirt(tmp_path: Path, both: Callable[..., dict[str, Any]], rows: int) -> None:
    with (tmp_path / "train.tsv").open("wb") as train:
        train.write(b"sentence\tlabel\n")
        for number, (text, label) in enumerate(shuffled(rows)):
            train.write(DIRT[number % len(DIRT)] + b"\n" if number % 997 == 0 else f"{text}\t{label}\r\n".encode())
        train.write(b"\t\n" * 1000)
    known = "".join(f"text number {number},1\n" for number in range(20))
    for split in ("dev", "test"):
        lines = "".join(f"{split} {text},{label}\n" for text, label in shuffled(rows // 20))
        (tmp_path / f"{split}.csv").write_text(f"sentence,label\n{lines}{known}")
    made = both(own(tmp_path), rows * 7)
    assert made["summaries"]["train"].set_aside > rows / 1500 and made["lists"][1].count("\n") >= 2
    assert made["remarks"][0][-1].endswith("1000 blank rows at the end were ignored")


def write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_file_with_all_rows_and_classes(tmp_path: Path, both: Callable[..., dict[str, Any]]) -> None:
    rows: list[dict[str, Any]] = [{"sentence": text, "label": label} for text, label in shuffled(300)]
    rows[5:5] = [{"sentence": " ", "label": "1"}, {"sentence": "x", "label": "odd"}, {"sentence": 3, "label": "0"}]
    write_rows(tmp_path / "all.jsonl", rows)
    made = both(own(tmp_path / "all.jsonl"), 4000)
    assert min(made["rows"].values()) > 10


def test_a_table_with_all_rows_and_scores(tmp_path: Path, both: Callable[..., dict[str, Any]]) -> None:
    rows = [(text, text[::-1], row % 50 / 10 - 1) for row, (text, _) in enumerate(shuffled(300))]
    columns = dict(zip(("sentence", "sentence2", "label"), zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "all.parquet", row_group_size=40)
    names = {"sentence": "sentence", "sentence2": "sentence2"}
    score = {"task": "regression", "score_range": [-0.5, 3.9], "columns": names}
    made = both(own(tmp_path / "all.parquet", **score), 4000)
    assert made["rows"]["dev"] > 10 and made["lists"][0]


def test_a_table_with_all_rows_and_several_labels(tmp_path: Path, both: Callable[..., dict[str, Any]]) -> None:
    chance = random.Random(2)
    rows = [
        (text, "|".join(chance.choices("abcde", [9, 5, 3, 2, 1], k=row % 4)))
        for row, (text, _) in enumerate(shuffled(300))
    ]
    with (tmp_path / "all.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("sentence", "label"), *rows, ('a "quoted"\ntext', "a"), ("odd", "f")])
    made = both(own(tmp_path / "all.csv", task="multi-label", labels=list("edcba")), 4000)
    assert made["rows"]["test"] > 10 and made["lists"][0]


def test_the_bundled_corpus_is_read_in_one_process(
    tmp_path: Path, both: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"{number}\t{number % 9 - 4}\tsentence number {number}\n" for number in range(200)))
    monkeypatch.setattr(sources, "open_source", lambda experiment: BundledCorpus(corpus))
    assert sum(both(Experiment(), 100)["rows"].values()) > 100


@pytest.mark.parametrize(
    ("train", "dev", "message"),
    [
        ('a,1\n"b,0\n', "c,1\n", "train.csv line 3: unbalanced quotes"),
        ("a,1\nb,0\n", '"c,1\n', "dev.csv line 2: unbalanced quotes"),
        ('a,1\n"b,0\n', '"c,1\n', "train.csv line 3: unbalanced quotes"),
        ("", "", "train.csv has no data rows"),
    ],
)
def test_the_same_error_comes_first(
    tmp_path: Path, both: Callable[..., dict[str, Any]], train: str, dev: str, message: str
) -> None:
    for name, text in (("train", train), ("dev", dev)):
        (tmp_path / f"{name}.csv").write_text(f"sentence,label\n{text}")
    assert message in both(own(tmp_path), 10)["error"]


def test_the_copy_of_a_table_lies_where_executors_see_it(
    tmp_path: Path, both: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_spark, "is_local", lambda _: False)
    texts, labels = zip(*shuffled(100), strict=True)
    write_deltalake(tmp_path / "reviews", pa.table({"sentence": texts, "label": list(map(str, labels))}))
    seen: list[Path] = []
    share = Staging.share
    monkeypatch.setattr(Staging, "share", lambda staged, path: seen.append(path.parent) or share(staged, path))  # type: ignore[func-returns-value]
    assert both(own(tmp_path / "reviews", source="delta"), 1000)["rows"]["test"] > 1
    assert seen == [tmp_path / "scratch-spark-1000"]
