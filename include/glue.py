"""The task registry. To add a GLUE-like task, add a row to _ROWS; experiments and the trigger form then offer it.

File layouts, columns and label names are those of the published GLUE release (Wang et al. 2019) and of its copy
on the Hugging Face hub. Gates are the results that the papers behind this project claim, and None where they claim
none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: A row has one label, its class; any number of labels; or a score.
Kind = Literal["classification", "multilabel", "regression"]
Metric = Literal["accuracy", "f1", "matthews", "f1_micro", "f1_macro", "pearson", "spearman"]
SPLITS = ("train", "dev", "test")
#: The metrics that the gate can require, by kind.
METRICS: dict[Kind, tuple[Metric, ...]] = {
    "classification": ("accuracy", "f1", "matthews"),
    "multilabel": ("f1_macro", "f1_micro"),
    "regression": ("pearson", "spearman"),
}
#: The kinds of tasks that each loss is for. The first loss of a kind is its default. Their functions are in
#: tasks/training/loss.py.
LOSSES: dict[str, tuple[Kind, ...]] = {
    "cross-entropy": ("classification",),
    "binary-cross-entropy": ("multilabel",),
    "focal": ("classification", "multilabel"),
    "mse": ("regression",),
    "huber": ("regression",),
}


def losses_for(kind: Kind) -> list[str]:
    """Return the names of the losses for a kind of tasks, its default first."""
    return [name for name, kinds in LOSSES.items() if kind in kinds]


@dataclass(frozen=True)
class Split:
    """A tab-separated file below the GLUE folder, its columns in order, and whether its first line names them."""

    file: str
    columns: tuple[str, ...]
    header: bool = True


@dataclass(frozen=True)
class Hub:
    """The same task in the data set `glue` of the Hugging Face hub, whose label ids equal the class ids used here."""

    config: str  # the name of the data set's configuration
    dev: str = "validation"
    test: str = "test"
    sentences: tuple[str, ...] = ()  # the text columns there; none if they are those of the task


@dataclass(frozen=True)
class Task:
    """A task: its data, labels and selection metric."""

    name: str  # as GLUE spells it
    kind: Kind
    sentences: tuple[str, ...]  # the text columns, one or two
    label: str  # the label column in train and dev
    metric: Metric  # the selection metric, which decides about the gate and the best checkpoint
    submission: str  # the task's prediction file in the submission zip
    labels: tuple[str, ...] = ()  # as the files write them, in the order of their class ids; none for a regression
    label_names: tuple[str, ...] = ()  # the same labels in words, for reports
    separator: str = "|"  # between the labels of a multilabel row in the files
    score_range: tuple[float, float] | None = None  # lowest and highest score of a regression
    gate: float | None = None  # the default threshold of the selection metric
    splits: dict[str, Split] = field(default_factory=dict)  # by name; none if the experiment names the files
    test_rows: int | None = None  # of the published test file
    hub: Hub | None = None

    @property
    def sentence_columns(self) -> tuple[str, ...]:
        """The text columns of the tables that stages write: sentence1 and, for a task on pairs, sentence2."""
        return ("sentence1", "sentence2")[: len(self.sentences)]

    @property
    def outputs(self) -> int:
        """The number of outputs of the model's head: the number of labels, or 1 for a regression."""
        return len(self.labels) or 1

    def labels_in(self, cell: str) -> list[str]:
        """Return the labels in a cell, which may be unknown ones: one or, in a multi-label file, any number."""
        if self.kind != "multilabel":
            return [cell]
        return [part.strip() for part in cell.split(self.separator)] if cell.strip() else []

    @property
    def slices(self) -> tuple[str, ...]:
        """The slices of dev that gate.slices can name: thirds by length in words, and the rows of each label."""
        labels = (f"label:{name}" for name in self.label_names)
        return ("length:short", "length:medium", "length:long", *labels)


def _splits(folder: str, train: str, test: str, header: bool = True) -> dict[str, Split]:
    """Return the common layout. Spaces separate the names of the columns, and ~ stands for a space inside a name."""
    files = {"train": (train, header), "dev": (train, header), "test": (test, True)}
    return {
        name: Split(f"{folder}/{name}.tsv", tuple(column.replace("~", " ") for column in columns.split()), has_header)
        for name, (columns, has_header) in files.items()
    }


_ZERO_ONE = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")

_PARSES = "sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse sentence1 sentence2"
_MNLI_TEST = tuple(f"index promptID pairID genre {_PARSES}".split())
_MNLI_TRAIN = Split("MNLI/train.tsv", (*_MNLI_TEST, "label1", "gold_label"))
_MNLI_DEV_LABELS = ("label1", "label2", "label3", "label4", "label5", "gold_label")


def _mnli(name: str, dev: str, test: Split, submission: str, test_rows: int, hub: Hub) -> Task:
    """Return the row for one of MNLI's three test files. All three share the train file."""
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
    _mnli(
        "MNLI", "dev_matched", Split("MNLI/test_matched.tsv", _MNLI_TEST), "MNLI-m.tsv", 9796,
        Hub("mnli", "validation_matched", "test_matched", ("premise", "hypothesis")),
    ),
    _mnli(
        "MNLI-mm", "dev_mismatched", Split("MNLI/test_mismatched.tsv", _MNLI_TEST), "MNLI-mm.tsv", 9847,
        Hub("mnli", "validation_mismatched", "test_mismatched", ("premise", "hypothesis")),
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
        "AX", "dev_matched", Split("AX/AX.tsv", ("index", "sentence1", "sentence2")), "AX.tsv", 1104,
        Hub("mnli", "validation_matched", "ax", ("premise", "hypothesis")),
    ),
    # The user's own data (data.source: files): the experiment provides columns, labels and score range. `auto`
    # becomes one of the others when the files are looked at (tasks/sources/describe.py).
    Task("auto", "classification", ("sentence",), "label", "accuracy", "predictions.tsv"),
    Task("classification", "classification", ("sentence",), "label", "accuracy", "predictions.tsv"),
    Task("multi-label", "multilabel", ("sentence",), "label", "f1_micro", "predictions.tsv"),
    Task("regression", "regression", ("sentence",), "score", "pearson", "predictions.tsv"),
)  # fmt: skip
TASKS: dict[str, Task] = {task.name: task for task in _ROWS}
#: The task whose kind the label column decides.
AUTO = "auto"
#: The tasks whose labels and columns the experiment describes.
GENERIC = ("classification", "multi-label", "regression", AUTO)

#: The tasks of a full GLUE submission, which has one file per task.
SUBMISSION_TASKS: tuple[str, ...] = (
    "AX", "CoLA", "MNLI", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI",
)  # fmt: skip
