"""The data: where it comes from, how it is validated and how it is preprocessed."""

from __future__ import annotations

import codecs
from typing import Annotated, Literal

from pydantic import Field, field_validator

from include.fields.base import PositiveShare, Section, Seed, Share, has_login, known_name, listed_names
from include.glue import AUTO, GENERIC, TASKS
from include.text import has_control, is_blank

#: How the names of the user's files may end, and what may follow the end of a text.
TEXT_FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson")
FORMATS = (*TEXT_FORMATS, ".parquet")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
#: The sources of a user's own data.
OWN = ("files", "delta", "iceberg")
Cleaning = Literal["html", "stop-words", "punctuation", "lowercase", "whitespace"]
Augmentation = Literal["synonyms", "masking", "order"]


def _tasks() -> list[str]:
    return list(TASKS)


class Data(Section):
    """The task to learn and the source of its data."""

    task: Annotated[str, known_name("task", _tasks), listed_names(_tasks)] = Field(
        "movie-reviews",
        description="The task to learn. auto: classification, multi-label or regression, depending on the labels in "
        "your own files. classification, multi-label and regression are for your own files; the others are corpora.",
    )
    source: Literal["bundled", "glue", "hub", "files", "delta", "iceberg"] = Field(
        "bundled",
        description="Where the data comes from. bundled: the movie-review corpus that the set-up downloads; glue: a "
        "folder in GLUE's layout; hub: GLUE from the Hugging Face hub, downloaded beforehand; files: your own files, "
        "whose names end in .csv, .tsv, .jsonl (JSON Lines) or .parquet; texts may be compressed, as in .csv.gz or "
        ".csv.zst; delta and iceberg: a table with all rows, which are split 8:1:1.",
    )
    path: str = Field(
        "",
        description="The folder that holds the data, or a file, a folder of files or a pattern such as 2026-*.csv with "
        "all rows, which are split 8:1:1 into train, dev and test. A relative path starts from the checkout. For "
        "delta, the table's folder or address, such as s3://bucket/reviews; for iceberg, the address of an SQL "
        "catalog without a login, such as sqlite:////data/catalog.db. For data.source glue, files, delta and iceberg.",
    )
    table: str = Field(
        "",
        pattern=r"^([^.]+\.[^.]+\..+)?$",
        description="The table as CATALOG.NAMESPACE.TABLE. For data.source iceberg.",
        examples=["prod.shop.reviews"],
    )
    version: str = Field(
        "",
        pattern="^[0-9]*$",
        description="The version of the Delta table, or the id of the Iceberg table's snapshot. If empty, the newest "
        "one; the result of validate has its number. For data.source delta and iceberg.",
    )
    train: str = Field(
        "train.tsv",
        description="The training file in the folder data.path, or a folder of files or a pattern such as train-*.tsv "
        "there, whose rows follow each other in the order of their names; likewise dev, test. For data.source files.",
    )
    dev: str = Field("dev.tsv", description="The file for metrics and gate in data.path. For data.source files.")
    test: str = Field(
        "test.tsv",
        description="The file to predict, in the folder data.path. Its labels are not read. If there is no test.tsv, "
        "nothing is predicted. For data.source files.",
    )
    columns: dict[Literal["sentence", "sentence2", "label"], str] = Field(
        {},
        description='The names of your columns, for example {"sentence": "review", "label": "stars"}. By default they '
        "are sentence and label. List sentence2 for pairs. For your own data.",
    )
    delimiter: str = Field(
        "",
        max_length=3,
        description="The character between columns, such as ; or the word tab. If empty, a comma in CSV files and a "
        "tab in TSV files. For data.source files.",
    )
    encoding: str = Field("utf-8", description="Encoding of CSV and TSV files, such as cp1252. For data.source files.")
    keep: tuple[str, ...] = Field(
        (),
        description="Columns that are copied from test, and from dev if it has them, to the predictions, for example "
        '["id"]. For your own data.',
    )
    labels: tuple[str, ...] = Field(
        (),
        description="The labels as your files write them, in the order of their class ids. Of two classes, the second "
        "is the positive one. If empty, those of train and dev in alphabetical order. For data.task multi-label, they "
        "may also be the names of columns with 0 and 1. Not for regression.",
    )
    label_map: dict[str, str] = Field(
        {},
        description="Other spellings of labels in your files and the label that each stands for, for example "
        '{"Yes ": "yes", "1.0": "yes"}. For your own data.',
    )
    label_separator: str = Field(
        "|",
        min_length=1,
        description="The text between the labels of a row in your files and in predictions, as in acting|plot. An "
        "empty cell has no label. Lists, also as texts such as ['acting', 'plot'], need no separator. For data.task "
        "multi-label.",
    )
    score_range: tuple[float, float] | None = Field(
        None, description="Lowest and highest score, such as [0, 5]. If empty, those of train and dev. For regression."
    )

    @property
    def is_described(self) -> bool:
        """Whether it says what a model has to learn. If not, the stage validate finds it out from the label column."""
        if self.task not in GENERIC:
            return True
        kind = TASKS[self.task].kind
        return self.task != AUTO and bool(self.score_range if kind == "regression" else self.labels)

    def file_names(self, split: str) -> list[str]:
        """Return the names that the file of a split may have, below path. A default name stands for all formats."""
        name: str = getattr(self, split)
        if name != Data.model_fields[split].default:
            return [name]
        compressed = (f"{suffix}{end}" for suffix in TEXT_FORMATS for end in COMPRESSIONS)
        return list(dict.fromkeys([name, *(f"{split}{suffix}" for suffix in (*FORMATS, *compressed))]))

    @field_validator("path")
    @classmethod
    def _address_has_no_login(cls, path: str) -> str:
        if "://" in path and has_login(path):
            raise ValueError("the address contains a login, which the run's record would show: remove it")
        return path

    @field_validator("delimiter")
    @classmethod
    def _delimiter_is_one_character(cls, delimiter: str) -> str:
        found = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
        if len(found) > 1 or found in ("\n", "\r", '"'):
            raise ValueError(f"{delimiter!r} cannot separate columns: write one character, such as ; or the word tab")
        return found

    @field_validator("encoding")
    @classmethod
    def _encoding_is_known(cls, encoding: str) -> str:
        try:
            "".encode(encoding)
        except (LookupError, ValueError):
            raise ValueError(
                f"there is no encoding {encoding[:40]!r}: write, for example, utf-8, cp1252 or utf-16"
            ) from None
        return "utf-8" if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig") else encoding

    @field_validator("label_separator")
    @classmethod
    def _separator_can_be_written(cls, separator: str) -> str:
        if has_control(separator):
            raise ValueError(f"{separator!r} {_CONTROL}: write another separator, such as |")
        return separator

    @field_validator("labels")
    @classmethod
    def _labels_differ_and_can_be_written(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        for index, label in enumerate(labels):
            if is_blank(label):
                raise ValueError(f"the label {label!a} has no visible character: rename it here and in the files")
            if has_control(label):
                raise ValueError(f"the label {label!r} {_CONTROL}: rename it here and in the files")
            if label in labels[:index]:
                raise ValueError(f"the label {label!r} is listed twice: list each label once")
        return labels


_CONTROL = (
    "contains a tab, a line break or another control character, which would break the rows of the prediction file"
)


class Validation(Section):
    """How many problems in the data are tolerated before a run stops."""

    max_quarantine: Share = Field(0.01, description="Share of a split's rows that may be set aside as unusable.")
    max_overlap: Share = Field(
        0.05,
        description="Largest share of the dev or test rows whose text may also occur in train, between 0 and 1. Texts "
        "are compared without regard to case, white space and most punctuation.",
    )


class Preprocessing(Section):
    """The conversion of text to token ids."""

    clean: tuple[Cleaning, ...] = Field(
        (),
        description="Cleaning rules for the text, applied in the order html, stop-words, punctuation, lowercase, "
        'whitespace. stop-words removes the English words of Spark\'s StopWordsRemover, "not" and "no" among them.',
    )
    sample: PositiveShare = Field(
        1.0, description="Share of the training rows that is used, stratified by label unless data.task is multi-label."
    )
    resplit: bool = Field(
        False, description="Merge train and dev, and split the rows again 8:1:1 into train, dev and a held-out set."
    )
    augment: tuple[Augmentation, ...] = Field(
        (),
        description="Methods of data augmentation, each of which adds one changed copy of every training row. "
        "synonyms: 10 % of the words are replaced by synonyms from WordNet; masking: 15 % of the words are masked; "
        "order: words move by up to 3 positions.",
    )
    max_length: int = Field(128, ge=8, le=512, description="Maximum length of an input in tokens.")
    long: Literal["truncate", "windows"] = Field(
        "truncate",
        description="What happens to texts longer than max_length. truncate: they are cut off; windows: they are "
        "divided into overlapping windows, each a training row with the label of the text, and predicted by the mean "
        "of the windows' logits. Not for pairs.",
    )
    stride: int = Field(32, ge=0, le=256, description="Tokens that neighboring windows share, at most max_length / 2.")
    seed: Seed = Field(0, description="Random seed of sampling, of splitting again and of augmentation.")

    @property
    def window_stride(self) -> int | None:
        """The number of tokens that neighboring windows share; None if long texts are truncated."""
        return self.stride if self.long == "windows" else None
