"""The data: where it comes from, how it is validated and how it is preprocessed."""

from __future__ import annotations

import codecs
from typing import Annotated, Literal

from pydantic import Field, field_validator

from include.glue import TASKS
from include.sections.base import Section, Share, known_name, listed_names
from include.text import has_control, is_blank

Cleaning = Literal["html", "punctuation", "lowercase", "whitespace"]
Augmentation = Literal["synonyms", "masking", "order"]


def _tasks() -> list[str]:
    return list(TASKS)


TaskName = Annotated[str, known_name("task", _tasks), listed_names(_tasks)]


class Data(Section):
    """The task to learn and the source of its data."""

    task: TaskName = Field(
        "movie-reviews",
        description="The task to learn. Tasks are listed in include/glue.py. auto: classification, multi-label or "
        "regression, whichever the labels in your own files are.",
    )
    source: Literal["bundled", "glue", "hub", "files"] = Field(
        "bundled",
        description="Where the data comes from. bundled: the movie-review corpus that the set-up downloads; glue: a "
        "folder in GLUE's layout; hub: GLUE from the Hugging Face hub, downloaded beforehand; files: your own files, "
        "whose names end in .csv, .tsv, .jsonl (JSON Lines) or .parquet.",
    )
    path: str = Field(
        "",
        description="The folder that holds the data; or one file with all rows, 8:1:1 of which become train, dev and "
        "test. A relative path starts from the checkout. Applies only if data.source is glue or files.",
    )
    train: str = Field(
        "train.tsv",
        description="The training file, relative to data.path. Applies only if data.source is files and data.path a "
        "folder, like data.dev and data.test.",
    )
    dev: str = Field("dev.tsv", description="The labeled file for metrics and gate, relative to data.path.")
    test: str = Field(
        "test.tsv",
        description="The file to predict, relative to data.path. Its labels are not read. If there is no test.tsv, "
        "nothing is predicted.",
    )
    columns: dict[Literal["sentence", "sentence2", "label"], str] = Field(
        {},
        description='The names of your columns, for example {"sentence": "review", "label": "stars"}. A column that is '
        "not listed has the name of its role: sentence or label. List sentence2 for pairs. Applies only if data.source "
        "is files.",
    )
    delimiter: str = Field(
        "",
        max_length=3,
        description="The character between the columns of a CSV or TSV file, such as ; (or the word tab). If it is "
        "empty, it is a comma in CSV files and a tab in TSV files. Applies only if data.source is files.",
    )
    encoding: str = Field(
        "utf-8",
        description="The encoding of CSV and TSV files, such as cp1252 for files of older Windows programs. Applies "
        "only if data.source is files.",
    )
    keep: tuple[str, ...] = Field(
        (),
        description='Columns of the test file that are copied into its predictions, for example ["id"]. The dev '
        "predictions and the mistakes in the report have those that the dev file has. Applies only if data.source is "
        "files.",
    )
    labels: tuple[str, ...] = Field(
        (),
        description="The labels as they are written in your files, in the order of their class ids. Of two classes, "
        "the second is the positive one. If none are listed, they are those of train and dev in alphabetical order. If "
        "data.task is multi-label, they may also be the names of columns with 0 and 1. Not for regression.",
    )
    label_map: dict[str, str] = Field(
        {},
        description="Other spellings of labels in your files, with the label that each stands for, for example "
        '{"Yes ": "yes", "1.0": "yes"}. Applies only if data.source is files.',
    )
    label_separator: str = Field(
        "|",
        min_length=1,
        description="The text between the labels of a row, as in acting|plot. A row whose label is empty has no label. "
        "A column of lists, or of texts such as ['acting', 'plot'], needs no separator. Predictions are written with "
        "it, too. Applies only if data.task is multi-label.",
    )
    score_range: tuple[float, float] | None = Field(
        None,
        description="The lowest and the highest score, for example [0, 5]. If it is empty, they are those of train and "
        "dev. Applies only if data.task is regression.",
    )

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
            raise ValueError(
                f"{separator!r} contains a tab, a line break or another control character, which would break the rows "
                "of the prediction file: write another separator, such as |"
            )
        return separator

    @field_validator("labels")
    @classmethod
    def _labels_differ_and_can_be_written(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        for index, label in enumerate(labels):
            if is_blank(label):
                raise ValueError(f"the label {label!a} has no visible character: rename it here and in the files")
            if has_control(label):
                raise ValueError(
                    f"the label {label!r} contains a tab, a line break or another control character, which would break "
                    "the rows of the prediction file: rename it here and in the files"
                )
            if label in labels[:index]:
                raise ValueError(f"the label {label!r} is listed twice: list each label once")
        return labels


class Validation(Section):
    """How many problems in the data are tolerated before a run stops."""

    engine: Literal["auto", "pandas", "spark"] = Field(
        "auto", description="The engine that checks the data. auto uses Spark for one million rows or more."
    )
    max_quarantine: Share = Field(
        0.01, description="Largest share of a split's rows that may be unusable and set aside, between 0 and 1."
    )
    max_overlap: Share = Field(
        0.05,
        description="Largest share of the dev or test rows whose text may also occur in train, between 0 and 1. Texts "
        "are compared without regard to case, white space, quotation marks, hyphens, full stops and commas, except "
        "before a digit.",
    )


class Preprocessing(Section):
    """The conversion of text to token ids."""

    clean: tuple[Cleaning, ...] = Field(
        (),
        description="Cleaning rules for the text. They are applied in the order html, punctuation, lowercase, "
        "whitespace.",
    )
    sample: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the training rows that is used. Sampling is stratified by label, unless data.task is "
        "multi-label.",
    )
    resplit: bool = Field(
        False,
        description="Merge train and dev, and split the rows again into train, dev and a held-out set (8:1:1).",
    )
    augment: tuple[Augmentation, ...] = Field(
        (),
        description="Methods of data augmentation. Each adds one changed copy of every training row. synonyms replaces "
        "10 % of the words with synonyms from WordNet; masking hides 15 % of the words; order moves words by up to 3 "
        "positions.",
    )
    max_length: int = Field(
        128,
        ge=8,
        le=512,
        description="Maximum length of an input, in tokens. What happens to longer texts is preprocessing.long.",
    )
    long: Literal["truncate", "windows"] = Field(
        "truncate",
        description="What happens to a text that is longer than preprocessing.max_length. truncate: it is cut off; "
        "windows: it is divided into overlapping windows, each of them a training row with the label of the text. The "
        "prediction for a text is made from the mean of its windows' logits. Not for pairs.",
    )
    stride: int = Field(
        32,
        ge=0,
        le=256,
        description="Number of tokens that neighboring windows share, at most half of preprocessing.max_length. "
        "Applies only if preprocessing.long is windows.",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="Random seed of sampling, of splitting again and of augmentation.")

    @property
    def window_stride(self) -> int | None:
        """The number of tokens that neighboring windows share; None if long texts are truncated."""
        return self.stride if self.long == "windows" else None
