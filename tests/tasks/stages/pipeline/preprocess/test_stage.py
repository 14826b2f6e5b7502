"""The stage: from validate's Parquet to token ids that a trainer maps into memory."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer

from include.artifacts import Artifact
from include.fields.ranks import Runtime
from include.named_experiments import build
from include.runs import Run
from include.stages import BadInput
from tasks.assets import wordnet_folder
from tasks.context import Outcome
from tasks.encoder.batching import TokenTable
from tasks.encoder.tokens import COPY
from tasks.stages.pipeline.preprocess import splits
from tasks.stages.pipeline.preprocess.stage import run
from tasks.stages.pipeline.preprocess.tokenize import load_tokenizer
from tasks.staging import STAGING
from tests.tasks.contexts import surroundings

Rows = list[tuple[Any, ...]]
SENTENCES = ["A good film!", "the film was very dull, unwatchable", "it moved me", "Great acting" * 20, "café 1 2 3"]


def write(folder: Path, name: str, rows: Rows, pair: bool = False) -> None:
    """Rows of (row, label, sentence1[, sentence2]) as validate writes them, in two files with small row groups."""
    columns = ["row", "label", "sentence1", *(["sentence2"] if pair else [])]
    kinds = [pa.int64(), pa.float64() if pair else pa.int64(), pa.string(), pa.string()]
    arrays = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), kinds, strict=False)]
    table = pa.table(arrays, names=columns)
    save(table.append_column("line", pa.array([row[0] + 2 for row in rows])), folder / f"{name}.parquet")


def save(table: pa.Table, folder: Path) -> None:
    half = len(table) // 2
    folder.mkdir(exist_ok=True)
    for number, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, folder / f"part-{number:05d}.parquet", row_group_size=7)


@pytest.fixture
def preprocess(tmp_path: Path, encoder: Path, artifact: Callable[[Path, str], Artifact]) -> Callable[..., Outcome]:
    """Run the stage on tmp_path/in, into tmp_path/out."""
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    output.mkdir()

    def go(data: str | dict[str, Any] = "SST-2", engine: str = "auto", **options: Any) -> Outcome:
        data = data if isinstance(data, dict) else {"task": data, "source": "glue", "path": "unused"}
        values = {"data": data, "model": {"name": str(encoder)}, "runtime": {"engine": engine}}
        experiment = build({**values, "preprocessing": options}, "test")
        inputs = {"validate": artifact(source, "validate")}
        return run(surroundings(experiment, Run(tmp_path / "runs" / "one"), inputs, output), "")

    return go


def test_inputs_longer_than_the_encoders_positions_are_refused_before_the_data_is_read(
    preprocess: Callable[..., Outcome],
) -> None:
    with pytest.raises(BadInput, match=r"max_length is 129, but the encoder in .* has 128 positions: write .* 128 or"):
        preprocess(max_length=129)


def single(folder: Path, train: int = 30) -> None:
    """A single-sentence task, with gaps where rows were quarantined."""
    numbers = sorted(np.random.default_rng(0).permutation(2 * train)[:train].tolist())
    write(folder, "train", [(row, row % 2, SENTENCES[row % 5]) for row in numbers])
    write(folder, "dev", [(row, row % 2, SENTENCES[row % 5]) for row in range(10)])
    write(folder, "test", [(row, None, SENTENCES[row % 5]) for row in range(10)])


def read(folder: Path) -> pa.Table:
    return pa.concat_tables(pa.ipc.open_file(pa.memory_map(str(file))).read_all() for file in sorted(folder.iterdir()))


def test_ids_are_the_tokenizers_own(preprocess: Callable[..., Outcome], tmp_path: Path, encoder: Path) -> None:
    single(tmp_path / "in")
    result = preprocess(max_length=16).result
    expected = AutoTokenizer.from_pretrained(encoder)(SENTENCES, truncation=True, max_length=16)["input_ids"]
    for split in ("train", "dev", "test"):
        table = read(tmp_path / "out" / split)
        numbers = table["row"].to_pylist()
        assert numbers == sorted(numbers)
        assert table["input_ids"].to_pylist() == [expected[number % 5] for number in numbers]
        assert table["length"].to_pylist() == table["first"].to_pylist() == [len(expected[n % 5]) for n in numbers]
        assert table["label"].to_pylist() == [None if split == "test" else number % 2 for number in numbers]
        assert table["sentence1"].to_pylist() == [SENTENCES[number % 5] for number in numbers]
    assert result["rows"] == {"train": 30, "dev": 10, "test": 10}
    assert result["partitions"] == {"train": 4, "dev": 4, "test": 4}
    assert result["truncated"]["dev"] == 2
    assert result["mean_length"]["dev"] == round(np.mean([len(ids) for ids in expected]), 2)


def test_long_texts_become_windows_and_short_ones_stay_as_they_are(
    preprocess: Callable[..., Outcome], tmp_path: Path, encoder: Path
) -> None:
    single(tmp_path / "in")
    result = preprocess(max_length=16, long="windows", stride=4).result
    cut = AutoTokenizer.from_pretrained(encoder)(
        SENTENCES, truncation=True, max_length=16, stride=4, return_overflowing_tokens=True
    )
    windows: dict[int, list[list[int]]] = {}
    for sample, ids in zip(cut["overflow_to_sample_mapping"], cut["input_ids"], strict=True):
        windows.setdefault(sample, []).append(ids)
    assert [len(windows[number]) > 1 for number in range(5)] == [False, False, False, True, False]
    for split in ("train", "dev", "test"):
        table = read(tmp_path / "out" / split)
        numbers = list(dict.fromkeys(table["row"].to_pylist()))
        expected = [(number, ids, at) for number in numbers for at, ids in enumerate(windows[number % 5])]
        assert table["row"].to_pylist() == [number for number, _, _ in expected]
        assert table["input_ids"].to_pylist() == [ids for _, ids, _ in expected]
        assert table["length"].to_pylist() == table["first"].to_pylist() == [len(ids) for _, ids, _ in expected]
        assert table["sentence1"].to_pylist() == [None if at else SENTENCES[n % 5] for n, _, at in expected]
        assert table["label"].to_pylist() == [None if split == "test" else number % 2 for number, _, _ in expected]
    every = sum(map(len, windows.values()))
    assert result["rows"] == {"train": 30, "dev": 10, "test": 10}
    assert result["windows"] == {"train": 6 * every, "dev": 2 * every, "test": 2 * every}
    assert result["truncated"] == {"train": 0, "dev": 0, "test": 0}
    assert result["mean_length"]["dev"] == round(np.mean([len(ids) for own in windows.values() for ids in own]), 2)


def test_copies_are_made_of_documents_and_not_of_windows(preprocess: Callable[..., Outcome], tmp_path: Path) -> None:
    single(tmp_path / "in")
    result = preprocess(max_length=16, long="windows", stride=4, augment=["order"], sample=0.5).result
    assert result["rows"]["train"] == 30 and result["windows"]["train"] > 30
    table = TokenTable.open(tmp_path / "out" / "train")
    assert sum(row >= COPY for row in table.rows[table.documents]) == 15


def test_a_damaged_tokenizer_is_told_before_the_work_starts(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(encoder, tmp_path / "encoder")
    (tmp_path / "encoder" / "tokenizer.json").write_text('{"version": ')
    monkeypatch.delattr(splits, "open_workers")
    with pytest.raises(BadInput, match=r"tokenizer\.json is not a tokenizer: fetch the model again"):
        experiment = build({"model": {"name": str(tmp_path / "encoder")}}, "test")
        run(surroundings(experiment, Run(tmp_path / "runs" / "one"), {}, tmp_path), "")


def test_pairs_are_cut_longest_first_and_know_where_the_first_ends(
    preprocess: Callable[..., Outcome], tmp_path: Path, encoder: Path
) -> None:
    pairs = [("a good film", "the film was good"), ("it moved me " * 5, "dull"), ("bad", "very dull film " * 6)]
    rows = [(row, float(row), *pairs[row % 3]) for row in range(6)]
    for split in ("train", "dev", "test"):
        write(tmp_path / "in", split, rows, pair=True)
    preprocess("STS-B", max_length=12)
    table = read(tmp_path / "out" / "dev")
    encoded = AutoTokenizer.from_pretrained(encoder)(
        [pair[0] for pair in pairs], [pair[1] for pair in pairs], truncation="longest_first", max_length=12,
        return_token_type_ids=True,
    )  # fmt: skip
    assert table["input_ids"].to_pylist() == encoded["input_ids"] * 2
    assert table["first"].to_pylist() == [types.count(0) for types in encoded["token_type_ids"]] * 2
    assert table["label"].to_pylist() == [float(row) for row in range(6)]
    assert table["sentence2"].to_pylist() == [pair[1] for pair in pairs] * 2


def test_ids_take_the_smallest_type_that_holds_the_vocabulary(encoder: Path, tmp_path: Path) -> None:
    assert load_tokenizer(str(encoder / "tokenizer.json"), 8)[1] == pa.uint8()
    words = {word: index for index, word in enumerate(["[UNK]", *map(str, range(300))])}
    from tokenizers import Tokenizer, models

    Tokenizer(models.WordLevel(words, "[UNK]")).save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(str(tmp_path / "tokenizer.json"), 8)[1] == pa.uint16()


def test_files_are_mapped_not_copied(preprocess: Callable[..., Outcome], tmp_path: Path) -> None:
    single(tmp_path / "in", train=6000)
    preprocess()
    before = pa.total_allocated_bytes()
    table = read(tmp_path / "out" / "train")
    values = [chunk.values.to_numpy(zero_copy_only=True) for chunk in table["input_ids"].chunks]
    assert sum(map(len, values)) > 50_000
    assert pa.total_allocated_bytes() - before < 4096


def test_empty_text_is_kept_and_told(
    preprocess: Callable[..., Outcome], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    single(tmp_path / "in")
    write(tmp_path / "in", "dev", [(0, 1, "?!"), (1, 0, "good"), (2, 1, "<br/>")])
    with caplog.at_level(logging.WARNING):
        result = preprocess(clean=["html", "punctuation", "whitespace"]).result
    assert result["empty"] == {"train": 0, "dev": 2, "test": 0}
    assert "dev: 2 rows have an empty sentence" in caplog.text
    assert read(tmp_path / "out" / "dev")["length"].to_pylist() == [2, 3, 2]


def test_a_sentence_of_a_megabyte_is_cut(preprocess: Callable[..., Outcome], tmp_path: Path) -> None:
    single(tmp_path / "in")
    write(tmp_path / "in", "dev", [(0, 1, "good film " * 100_000)])
    assert preprocess(max_length=32).result["truncated"]["dev"] == 1
    assert read(tmp_path / "out" / "dev")["length"].to_pylist() == [32]


def test_sample_and_resplit(preprocess: Callable[..., Outcome], tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        film = "good" if split == "test" else "bad"
        write(tmp_path / "in", split, [(3 * row, row % 2, f"{film} film {row}") for row in range(200)])
    assert preprocess(resplit=True, sample=0.5).result["rows"] == {"train": 160, "dev": 40, "test": 200, "heldout": 40}
    tables = [read(tmp_path / "out" / split) for split in ("train", "dev", "heldout")]
    numbers = [table["row"].to_pylist() for table in tables]
    assert all(own == sorted(own) for own in numbers)
    assert len({number for own in numbers for number in own}) == 240
    for row in pa.concat_tables(tables).to_pylist():
        number = row["row"] % 598 // 3  # a row of dev has the number that follows train's highest one
        assert (row["sentence1"], row["label"]) == (f"bad film {number}", number % 2)
    assert max(map(max, numbers)) > 598
    files = sorted((tmp_path / "out" / "train").iterdir())
    assert [len(pa.ipc.open_file(file).read_all()) for file in files] == [40] * 4


def test_too_padded_rows_to_resplit(preprocess: Callable[..., Outcome], tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        texts = ["good", "film"] if split == "test" else ["bad", "dull"]
        write(tmp_path / "in", split, [(0, 0, texts[0]), (1, 1, texts[1])])
    with pytest.raises(BadInput, match="no rows are left for dev"):
        preprocess(resplit=True)


def test_only_finished_parts_lie_in_the_folder(preprocess: Callable[..., Outcome], tmp_path: Path) -> None:
    single(tmp_path / "in")
    preprocess()
    names = sorted(file.name for file in (tmp_path / "out" / "dev").iterdir())
    assert names == [f"part-{number:05d}.arrow" for number in range(4)]


def test_copies_are_added_to_train_only(preprocess: Callable[..., Outcome], tmp_path: Path, encoder: Path) -> None:
    wordnet_folder(Runtime(download=True))
    single(tmp_path / "in")
    result = preprocess(augment=["order", "masking", "synonyms"], clean=["punctuation", "lowercase"]).result
    assert result["rows"] == {"train": 120, "dev": 10, "test": 10}
    clean = [re.sub(r"[^\w\s]", "", sentence).lower() for sentence in SENTENCES]
    train = read(tmp_path / "out" / "train").to_pylist()
    assert len({row["row"] for row in train}) == 120
    assert [row["row"] for row in train] == sorted(row["row"] for row in train)
    assert all(row["label"] == row["row"] % COPY % 2 for row in train)
    by_method = [
        {row["row"] % COPY % 5: row["sentence1"] for row in train if row["row"] // COPY == n} for n in range(4)
    ]
    assert by_method[0] == dict(enumerate(clean))
    assert by_method[1][0] in {"a good movie", "a good picture"}
    assert all(sorted(by_method[3][at].split()) == sorted(clean[at].split()) for at in range(5))
    masked = [row for row in train if "[UNK]" in row["sentence1"]]
    assert masked and all(row["row"] // COPY == 2 for row in masked)
    encoded = AutoTokenizer.from_pretrained(encoder)([row["sentence1"] for row in masked])["input_ids"]
    assert [row["input_ids"] for row in masked] == encoded
    assert read(tmp_path / "out" / "dev")["sentence1"].to_pylist() == clean * 2


@pytest.mark.usefixtures("spark")
def test_executors_write_the_same_files_as_one_process_also_without_the_drivers_folders(
    preprocess: Callable[..., Outcome], tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wordnet_folder(Runtime(download=True))
    for split in ("train", "dev", "test"):
        write(tmp_path / "in", split, [(row, row % 2, f"{split} {row}: {SENTENCES[row % 5]}") for row in range(60)])
    options: dict[str, Any] = {"resplit": True, "sample": 0.5, "augment": ["synonyms", "order"], "clean": ["lowercase"]}

    def made(engine: str) -> tuple[Any, dict[str, bytes]]:
        result, output = preprocess(engine=engine, **options).result, tmp_path / "out"
        files = {str(file.relative_to(output)): file.read_bytes() for file in output.rglob("*.*")}
        shutil.rmtree(output)
        output.mkdir()
        return result, files

    alone = made("process")
    assert len(alone[1]) == 16 and made("spark") == alone
    monkeypatch.setattr("tasks.staging.is_local", lambda spark: False)
    monkeypatch.setenv(STAGING, bucket)
    assert made("spark") == alone


def test_both_sentences_of_a_pair_are_changed(preprocess: Callable[..., Outcome], tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        write(
            tmp_path / "in", split, [(row, row / 2, "a good film it was", "the 1 2 3 !") for row in range(8)], pair=True
        )
    preprocess("STS-B", augment=["order"])
    copies = [row for row in read(tmp_path / "out" / "train").to_pylist() if row["row"] >= COPY]
    assert [row["label"] for row in copies] == [row / 2 for row in range(8)]
    for name, text in (("sentence1", "a good film it was"), ("sentence2", "the 1 2 3 !")):
        assert len({row[name] for row in copies}) > 1
        assert all(sorted(row[name].split()) == sorted(text.split()) for row in copies)


def test_sets_of_labels_are_sampled_and_split_again_without_strata(
    preprocess: Callable[..., Outcome], tmp_path: Path, encoder: Path
) -> None:
    for split, rows in (("train", 40), ("dev", 20), ("test", 5)):
        labels = [None if split == "test" else f"{row:06b}" for row in range(rows)]  # each set of labels occurs once
        columns = {"row": range(rows), "label": pa.array(labels, pa.string()), "line": range(rows)}
        texts = [f"{split} {number}" for number in map(str, range(rows))]
        save(pa.table({**columns, "sentence1": texts}), tmp_path / "in" / f"{split}.parquet")
    data = {"task": "multi-label", "source": "files", "path": "x", "labels": list("abcdef")}
    result = preprocess(data, resplit=True, sample=0.5).result
    assert result["rows"] == {"train": 24, "dev": 6, "heldout": 6, "test": 5}
    table = TokenTable.open(tmp_path / "out" / "dev")
    assert table.labels.shape == (6, 6) and set(table.labels.ravel()) == {0, 1}
    assert table.batch(np.arange(2)).labels.tolist() == table.labels[:2].tolist()
    assert not TokenTable.open(tmp_path / "out" / "test").labeled
