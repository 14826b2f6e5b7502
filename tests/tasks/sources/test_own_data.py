"""The user's own files: what is found out about their labels, how one file is split, and how labels are written."""

from __future__ import annotations

import json
import random
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.experiment import Experiment
from include.glue import SPLITS
from include.named_experiments import build
from include.stages import BadInput
from tasks.sources import Record, open_source
from tasks.sources.describe import describe
from tasks.sources.quarantine import Quarantine

pytestmark = pytest.mark.usefixtures("in_pieces")


def own(path: Path, **data: Any) -> Experiment:
    return build({"data": {"task": "auto", "source": "files", "path": str(path), **data}}, "mine")


def one_file(folder: Path, cells: list[Any], **data: Any) -> Experiment:
    """A file of JSON Lines with these labels, and texts that all differ."""
    rows = [{"body": f"text number {row}", "class": label} for row, label in enumerate(cells)]
    (folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return own(folder / "all.jsonl", columns={"sentence": "body", "label": "class"}, **data)


def labels_of(experiment: Experiment) -> list[str]:
    return [record.label or record.problem for record in open_source(experiment).records("train")]


@pytest.mark.parametrize(
    ("labels", "task", "expected"),
    [
        (["yes", "no", "yes"] * 9, "classification", ("no", "yes")),
        ([1, 0, 1] * 9 + [float("nan")], "classification", ("0", "1")),
        ([True, False] * 9, "classification", ("false", "true")),
        (["b", "", None, "a"] * 9, "classification", ("a", "b")),
        ([["b", "a"], [], ["c"]] * 9, "multi-label", ("a", "b", "c")),
        (["['b', \"it's\"]", "[]", "['c']"] * 9, "multi-label", ("b", "c", "it's")),
        ([0.5, 2, 3.25] * 9, "regression", (0.5, 3.25)),
        ([*range(40), "n/a"], "regression", (0, 39)),
        ([*range(40), "inf"], "regression", (0, 39)),
        ([0, 1] * 20 + ["N/A"], "classification", ("0", "1")),
    ],
)
def test_the_label_column_says_what_the_task_is(
    tmp_path: Path, labels: list[Any], task: str, expected: tuple[Any, ...]
) -> None:
    found = describe(one_file(tmp_path, labels))
    assert found.data.is_described
    assert found.data.task == task
    assert (found.data.score_range if task == "regression" else found.data.labels) == expected


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        ([1, 2, 3, 4, 5] * 9, {}, "has the whole numbers 1, 2, 3, 4, 5: are they classes or scores? Write data.task:"),
        ([*range(77)] * 9, {}, "18, 19 and 57 more: are they classes or scores? Write data.task:"),
        (["acting|plot", "plot", "acting"] * 9, {}, "write data.task: multi-label if '|' separates labels"),
        ([f"a {row}" for row in range(40)], {}, "has 40 different values in 40 rows, such as 'a 0' (1 row)"),
        (["a"] * 9, {}, "has 'a' (9 rows): a model needs at least two labels"),
        ([""] * 9, {}, "has no labels"),
        (["a"] * 9, {"task": "regression"}, "has 'a' (9 rows): a regression needs different numbers"),
        (
            ["movie"] * 9 + ["Movie "] * 2 + ["book"] * 3,
            {},
            "only in case, blanks, or the form of a number: 'movie' (9 rows), 'Movie ' (2 rows). If they are the same, "
            'write data.label_map: {"Movie ": "movie"}; if not, list all labels in data.labels',
        ),
        (["0", "0.0", "1"] * 9, {}, '{"0.0": "0"}'),
    ],
)
def test_what_is_unclear_is_asked(tmp_path: Path, labels: list[Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        describe(one_file(tmp_path, labels, **given))
    assert str(tmp_path / "all.jsonl") in str(caught.value)
    assert message in str(caught.value)


def test_an_answer_is_taken(tmp_path: Path) -> None:
    stars = [1, 2, 3, 10] * 9
    assert describe(one_file(tmp_path, stars, task="classification")).data.labels == ("1", "2", "3", "10")
    assert describe(one_file(tmp_path, stars, task="regression")).data.score_range == (1, 10)
    assert describe(one_file(tmp_path, stars, score_range=[0, 20])).data.task == "regression"
    spelled = ["Yes ", "yes", "no"] * 9
    mapped = describe(one_file(tmp_path, spelled, label_map={"Yes ": "yes"}))
    assert mapped.data.labels == ("no", "yes")
    assert Counter(labels_of(mapped)) == {"yes": 14, "no": 7}
    chain = {"a": "b", "b": "c"}
    for task in ("auto", "multi-label"):
        found = describe(one_file(tmp_path, [["a"], ["d", "a"], "a"] * 9, task=task, label_map=chain))
        assert found.data.labels == ("b", "d") and set(labels_of(found)) == {"b", "d|b"}
    long = ["1000001", "1000002", "123456789012345678901234567890", "123456789012345678901234567891"]
    assert describe(one_file(tmp_path, long * 9, task="classification")).data.labels == tuple(long)
    assert describe(one_file(tmp_path, spelled, labels=["Yes ", "yes", "no"])).data.labels == ("Yes ", "yes", "no")


def test_one_file_is_split_alike_whatever_the_order_of_its_rows(tmp_path: Path) -> None:
    labels = ["often"] * 200 + ["seldom"] * 30 + ["rare"] * 6 + [""] * 2
    rows = [f'"A text, number {at // 2 * 2}",{label}\n' for at, label in enumerate(labels)]  # each text occurs twice
    parts: list[dict[str, set[str]]] = []
    for seed in range(2):
        random.Random(seed).shuffle(rows)
        (tmp_path / "all.csv").write_text("sentence,label\n" + "".join(rows))
        source = open_source(own(tmp_path / "all.csv", task="classification", labels=["often", "seldom", "rare"]))
        records = {split: list(source.records(split)) for split in SPLITS}
        parts.append({split: {record.sentences[0] for record in found} for split, found in records.items()})
        assert sorted(record.row for found in records.values() for record in found) == list(range(len(labels)))
        assert all(record.line == record.row + 2 for found in records.values() for record in found)
        assert Counter(record.label for record in records["dev"]) == {"often": 20, "seldom": 4, "rare": 2}
        assert {record.label for record in records["test"]} == {""}
        assert not parts[-1]["train"] & parts[-1]["dev"] | parts[-1]["dev"] & parts[-1]["test"]
        assert sum(record.label == "" for record in records["train"]) == 2  # what cannot be used needs no prediction
    assert parts[0] == parts[1]


def test_scores_and_sets_of_labels_are_split_evenly(tmp_path: Path) -> None:
    scores = open_source(one_file(tmp_path, [row / 10 for row in range(100)], task="regression", score_range=[0, 10]))
    dev = [float(record.label) for record in scores.records("dev")]
    assert [int(score) for score in sorted(dev)] == list(range(10))
    sets = [["common"]] * 60 + [["common", "rare"]] * 3
    found = open_source(one_file(tmp_path, sets, task="multi-label", labels=["common", "rare"]))
    assert sum("rare" in record.label for record in found.records("dev")) == 1


def test_a_folder_needs_no_test_file_and_any_format_has_the_default_name(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("sentence,label\ngood,1\n")
    (tmp_path / "dev.ndjson").write_text(
        '{"sentence": "bad", "label": 0, "more": [1]}\n\n{"sentence": 3, "label": 1}\n'
    )
    source = open_source(own(tmp_path))
    assert source.splits == ("train", "dev")
    assert [record.label or record.problem for record in source.records("dev")] == ["0", "'sentence' is not text"]
    assert list(source.records("test")) == []
    assert source.remarks("test") == [
        f"there is no file {tmp_path / 'test.tsv'}, so nothing is predicted: put it there, or name another"
    ]
    assert open_source(own(tmp_path, test="")).remarks("test") == []
    first = source.fingerprint()
    assert len(first) == 64
    (tmp_path / "train.csv").rename(tmp_path / "train.tsv")
    assert open_source(own(tmp_path)).fingerprint() != first
    (tmp_path / "train.tsv").rename(tmp_path / "train.csv")
    with pytest.raises(BadInput, match=r"missing\.csv is missing"):
        open_source(own(tmp_path, test="missing.csv")).fingerprint()
    (tmp_path / "train.parquet").write_bytes(b"")
    with pytest.raises(BadInput, match=r"has train.csv and train.parquet: name one of them as data.train"):
        open_source(own(tmp_path))


@pytest.mark.parametrize(
    ("name", "delimiter", "encoding"),
    [("all.csv", ";", "cp1252"), ("all.tsv", "|", "utf-16"), ("all.csv", "tab", "utf-8"), ("all.csv", "", "latin-1")],
)
def test_delimiter_and_encoding_are_options(tmp_path: Path, name: str, delimiter: str, encoding: str) -> None:
    mark = {"": ",", "tab": "\t"}.get(delimiter, delimiter)
    (tmp_path / name).write_bytes(f"sentence{mark}label\ncaf\u00e9{mark}1\nth\u00e9{mark}0\n".encode(encoding))
    source = open_source(own(tmp_path / name, task="SST-2", delimiter=delimiter, encoding=encoding))
    assert [(record.sentences, record.label) for record in source.records("train")] == [
        (("caf\u00e9",), "1"), (("th\u00e9",), "0"),
    ]  # fmt: skip
    assert source.fingerprint()


def test_columns_of_zeros_and_ones_are_labels(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"body": ["a", "b", "c"], "plot": [1, 0, None], "acting": [1.0, 0.0, 2.0]}), tmp_path / "all.parquet"
    )
    experiment = own(tmp_path / "all.parquet", columns={"sentence": "body"}, labels=["acting", "plot"])
    assert describe(experiment).data.task == "multi-label"
    assert labels_of(describe(experiment)) == ["acting|plot", "", "the column 'acting' has 2.0, not 0 or 1"]


def test_lists_as_text_are_labels(tmp_path: Path) -> None:
    cells = ["['a', 'b']", '["b"]', "[]", "['a' 'b']", "[x]", "a|b", "[{{}}]"]
    found = labels_of(one_file(tmp_path, cells, task="multi-label", labels=["a", "b"]))
    assert found == ["a|b", "b", "", """the list "['a' 'b']" has no commas: write it as ['a', 'b']""", *cells[4:]]


def test_set_aside_labels_are_grouped_with_the_way_to_write_them(tmp_path: Path) -> None:
    labels = ["False"] * 5 + ["0.0"] * 4 + ["movie "] * 3 + ["other"] * 2 + ["movie"]
    experiment = one_file(tmp_path, labels, task="classification", labels=["movie", "false", "0"])
    quarantine = Quarantine(StringIO(), "train", "all.jsonl")
    usable = list(quarantine.usable(open_source(experiment).records("train"), experiment.task))
    assert [record.label for record in usable] == ["movie"]
    quarantine.add(
        Record(99, 101, (), problem="broken encoding: byte 0xe9 is not UTF-8"),
        "broken encoding: byte 0xe9 is not UTF-8",
    )
    summary = quarantine.tally.summary(experiment.task)
    assert summary.set_aside == 15
    assert summary.hints == (
        "; if the file is in the encoding of older Windows programs, set data.encoding to cp1252"
        "; if 'False' (5 rows), 0.0 (4 rows), 'movie ' (3 rows) are labels in another spelling, write "
        'data.label_map: {"False": "false", "0.0": "0", "movie ": "movie"}'
    )


def test_labels_of_another_task_are_said_to_be_found(tmp_path: Path) -> None:
    experiment = one_file(tmp_path, ["good", "bad", "1"], task="movie-reviews")
    quarantine = Quarantine(StringIO(), "train", "all.jsonl")
    usable = list(quarantine.usable(open_source(experiment).records("train"), experiment.task))
    assert [record.label for record in usable] == ["1"]
    assert quarantine.tally.summary(experiment.task).hints == (
        "; if 'good' (1 row), 'bad' (1 row) are the labels, write data.task: auto, and they are found"
    )


def test_what_one_file_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "all.xlsx").touch()
    with pytest.raises(
        BadInput, match=r"all\.xlsx: the names of a table's files must all end in one of \.csv, .*\.jsonl"
    ):
        open_source(own(tmp_path / "all.xlsx"))
    with pytest.raises(BadInput, match=r"none\.csv is missing: put the file there"):
        open_source(own(tmp_path / "none.csv")).fingerprint()
    (tmp_path / "all.csv").write_text("body;class\na;b\n")
    with pytest.raises(BadInput, match=r"separated by semicolons.* name the character between columns in data\.deli"):
        describe(own(tmp_path / "all.csv", columns={"sentence": "body", "label": "class"}))


def test_blanks_in_a_header_are_shown(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("sentence ,label\ngood,1\n")
    blanks = r"found: 'sentence ', label \('sentence ' has blanks around the name"
    with pytest.raises(
        BadInput, match=blanks + r".*\. Name the column in data\.columns, as \{'sentence': 'column name'\}"
    ):
        describe(own(tmp_path / "all.csv"))


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        (
            "all.csv",
            "body^class\na^b\n",
            r"body\^class\. Name the character .* in data\.delimiter\. Name the column in data\.",
        ),
        (
            "all.jsonl",
            '{"body": "a"}\n',
            r"found: body\. Name the column in data\.columns, as \{'sentence': 'column name'\}",
        ),
    ],
)
def test_a_single_column_gets_every_remedy(tmp_path: Path, name: str, content: str, remedy: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=remedy):
        describe(own(tmp_path / name))
