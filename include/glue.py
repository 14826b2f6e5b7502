"""The task registry: every task is a row of data; adding one is adding a row.

File layouts, columns and label names are those of the published GLUE release (Wang et al. 2019) and of its copy
on the hub. Gates are the figures that the papers behind this project claim; None where they claim none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["classification", "regression"]
Metric = Literal["accuracy", "f1", "matthews", "pearson", "spearman"]
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Split:
    """One file of a task: its path below the GLUE folder and its tab-separated columns, in order."""

    file: str
    columns: tuple[str, ...]
    header: bool = True


@dataclass(frozen=True)
class Hub:
    """The same task in the hub's `glue` data set: configuration and split names (its label ids are ours)."""

    config: str
    dev: str = "validation"
    test: str = "test"
    sentences: tuple[str, ...] = ()  # where the hub names the columns differently


@dataclass(frozen=True)
class Task:
    """A fine-tuning task.

    Attributes:
        name: GLUE's own name.
        kind: classification (label is a class) or regression (label is a score).
        sentences: the text columns, one or two.
        label: the label's column in train and dev.
        labels: the label as the files write it; its position is the class id. Empty for regression.
        label_names: the same in words, for reports.
        score_range: lowest and highest score of a regression.
        metric: the metric that decides (gate, best checkpoint).
        gate: its default threshold, None where nobody has set one.
        splits: train, dev and test files.
        submission: name of the predictions file in the submission zip.
        test_rows: rows of the published test file; None where there is none.
    """

    name: str
    kind: Kind
    sentences: tuple[str, ...]
    label: str
    metric: Metric
    submission: str
    labels: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    score_range: tuple[float, float] | None = None
    gate: float | None = None
    splits: dict[str, Split] = field(default_factory=dict)
    test_rows: int | None = None
    hub: Hub | None = None

    @property
    def outputs(self) -> int:
        """Width of the model's head: the number of classes, 1 for a regression."""
        return len(self.labels) or 1

    @property
    def slices(self) -> tuple[str, ...]:
        """The slices of dev that gate.slices can name: thirds by length in words, and the rows of each label."""
        labels = (f"label:{name}" for name in self.label_names)
        return ("length:short", "length:medium", "length:long", *labels)


def _splits(folder: str, train: str, test: str, dev: str | None = None, header: bool = True) -> dict[str, Split]:
    """The common layout: <folder>/{train,dev,test}.tsv with space-separated column names given here."""

    def columns(text: str) -> tuple[str, ...]:
        return tuple(name.replace("~", " ") for name in text.split())

    return {
        "train": Split(f"{folder}/train.tsv", columns(train), header),
        "dev": Split(f"{folder}/dev.tsv", columns(dev or train), header),
        "test": Split(f"{folder}/test.tsv", columns(test)),
    }


_ZERO_ONE = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")

_PARSES = "sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 sentence2"
_MNLI_TEST = tuple(f"index promptID pairID genre {_PARSES}".split())
_MNLI_TRAIN = Split("MNLI/train.tsv", (*_MNLI_TEST, "label1", "gold_label"))
_MNLI_DEV_LABELS = ("label1", "label2", "label3", "label4", "label5", "gold_label")


def _mnli(name: str, dev: str, test: Split, submission: str, test_rows: int, hub: Hub) -> Task:
    """MNLI's data has three test files; each is a row of its own, with the same train file."""
    dev_split = Split(f"MNLI/{dev}.tsv", (*_MNLI_TEST, *_MNLI_DEV_LABELS))
    return Task(
        name, "classification", ("sentence1", "sentence2"), "gold_label", "accuracy", submission,
        labels=_NLI, label_names=_NLI, splits={"train": _MNLI_TRAIN, "dev": dev_split, "test": test},
        test_rows=test_rows, hub=hub,
    )  # fmt: skip


_ROWS = (
    Task(
        "movie-reviews", "classification", ("sentence",), "label", "accuracy", "movie-reviews.tsv",
        labels=_ZERO_ONE, label_names=("negative", "positive"), gate=0.85,
        splits=_splits("movie-reviews", "sentence label", "index sentence"),
    ),
    Task(
        "SST-2", "classification", ("sentence",), "label", "accuracy", "SST-2.tsv",
        labels=_ZERO_ONE, label_names=("negative", "positive"), gate=0.927,
        splits=_splits("SST-2", "sentence label", "index sentence"),
        test_rows=1821, hub=Hub("sst2"),
    ),
    Task(
        "CoLA", "classification", ("sentence",), "label", "matthews", "CoLA.tsv",
        labels=_ZERO_ONE, label_names=("unacceptable", "acceptable"), gate=0.4551,
        splits=_splits("CoLA", "source label star sentence", "index sentence", header=False),
        test_rows=1063, hub=Hub("cola"),
    ),
    Task(
        "STS-B", "regression", ("sentence1", "sentence2"), "score", "pearson", "STS-B.tsv",
        score_range=(0.0, 5.0), gate=0.8597,
        splits=_splits(
            "STS-B",
            "index genre filename year old_index source1 source2 sentence1 sentence2 score",
            "index genre filename year old_index source1 source2 sentence1 sentence2",
        ),
        test_rows=1379, hub=Hub("stsb"),
    ),
    Task(
        "MRPC", "classification", ("#1 String", "#2 String"), "Quality", "f1", "MRPC.tsv",
        labels=_ZERO_ONE, label_names=("not equivalent", "equivalent"),
        splits=_splits(
            "MRPC", "Quality #1~ID #2~ID #1~String #2~String", "index #1~ID #2~ID #1~String #2~String"
        ),
        test_rows=1725, hub=Hub("mrpc", sentences=("sentence1", "sentence2")),
    ),
    Task(
        "QQP", "classification", ("question1", "question2"), "is_duplicate", "f1", "QQP.tsv",
        labels=_ZERO_ONE, label_names=("not duplicate", "duplicate"),
        splits=_splits("QQP", "id qid1 qid2 question1 question2 is_duplicate", "id question1 question2"),
        test_rows=390965, hub=Hub("qqp"),
    ),
    Task(
        "QNLI", "classification", ("question", "sentence"), "label", "accuracy", "QNLI.tsv",
        labels=_ENTAILMENT, label_names=_ENTAILMENT,
        splits=_splits("QNLI", "index question sentence label", "index question sentence"),
        test_rows=5463, hub=Hub("qnli"),
    ),
    Task(
        "RTE", "classification", ("sentence1", "sentence2"), "label", "accuracy", "RTE.tsv",
        labels=_ENTAILMENT, label_names=_ENTAILMENT,
        splits=_splits("RTE", "index sentence1 sentence2 label", "index sentence1 sentence2"),
        test_rows=3000, hub=Hub("rte"),
    ),
    Task(
        "WNLI", "classification", ("sentence1", "sentence2"), "label", "accuracy", "WNLI.tsv",
        labels=_ZERO_ONE, label_names=("not entailment", "entailment"),
        splits=_splits("WNLI", "index sentence1 sentence2 label", "index sentence1 sentence2"),
        test_rows=146, hub=Hub("wnli"),
    ),
    _mnli(
        "MNLI", "dev_matched", Split("MNLI/test_matched.tsv", _MNLI_TEST), "MNLI-m.tsv", 9796,
        Hub("mnli", "validation_matched", "test_matched", ("premise", "hypothesis")),
    ),
    _mnli(
        "MNLI-mm", "dev_mismatched", Split("MNLI/test_mismatched.tsv", _MNLI_TEST), "MNLI-mm.tsv", 9847,
        Hub("mnli", "validation_mismatched", "test_mismatched", ("premise", "hypothesis")),
    ),
    _mnli(
        "AX", "dev_matched", Split("AX/AX.tsv", ("index", "sentence1", "sentence2")), "AX.tsv", 1104,
        Hub("mnli", "validation_matched", "ax", ("premise", "hypothesis")),
    ),
    # One's own data (data.source: files): columns, labels and score range come from the experiment.
    Task("classification", "classification", ("sentence",), "label", "accuracy", "predictions.tsv"),
    Task("regression", "regression", ("sentence",), "score", "pearson", "predictions.tsv"),
)  # fmt: skip
TASKS: dict[str, Task] = {task.name: task for task in _ROWS}

#: The tasks of a full GLUE submission, one file each.
SUBMISSION_TASKS: tuple[str, ...] = (
    "AX", "CoLA", "MNLI", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI",
)  # fmt: skip
