"""The expectation suite of one split, made from the task's registry row.

Each rule is a Great Expectations expectation with a severity: critical stops the run, warning is reported. Its meta
says in a person's words what was seen and what to do about a failure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from great_expectations import expectations as gxe
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity

from include.glue import Task
from include.sections import Validation
from tasks.sources.quarantine import Intake
from tasks.stages.validate.tables import checked_schema, sentence_columns

CRITICAL, WARNING = FailureSeverity.CRITICAL, FailureSeverity.WARNING
LONGEST = 10_000  # characters; a text beyond it is more likely a broken file than a sentence
CUT = 2_000  # characters that surely fill the 512 positions of a BERT, at about 4 characters a token
SMALLEST_CLASS = 0.2  # of an even share: one row in ten for two classes
# U+FFFD, and UTF-8 that was read as Latin-1 and written again
MOJIBAKE = "\ufffd|Ã[\u0080-\u00bf]|Â[\u00a0-\u00bf]|â€"


def rules(task: Task, split: str, limits: Validation, intake: Intake, rows: int) -> list[Expectation]:
    """All rules of a split, which holds so many rows after quarantine and overlap took theirs."""
    found = [*_counts(), *_quarantine(split, limits, intake, rows), *_texts(task)]
    if split == "test":
        found += _unlabelled(task)
    else:
        found += _labels(task)
    if split != "train":
        found += _overlap(limits)
    return found


def _rule(
    kind: type[Expectation], name: str, severity: FailureSeverity, seen: str, remedy: str, **options: Any
) -> Expectation:
    """An expectation with its words: what was seen, and what a failure means or what to do about it.

    `seen` may use {bad}, {good} and {rows}, the number of rows that break and keep the rule and of all, or {observed},
    where the rule is about the split as a whole.
    """
    meta = {"rule": name, "seen": seen, "remedy": remedy}
    return kind(severity=severity, meta=meta, notes=f"**{name}** ({severity.value})", **options)


def _counts() -> Iterator[Expectation]:
    yield _rule(
        gxe.ExpectTableRowCountToBeBetween, "row count", CRITICAL, "{observed} usable rows",
        "give the split rows that can be used", min_value=1,
    )  # fmt: skip


def _quarantine(split: str, limits: Validation, intake: Intake, rows: int) -> Iterator[Expectation]:
    """As rules on the number of rows that are left: what was set aside is in the quarantine, not in the frame."""
    share = 0.0 if split == "test" else limits.max_quarantine
    seen = f"{intake.set_aside:,} of {intake.read:,} rows cannot be used{intake.examples}"
    why = "every test row needs a prediction" if split == "test" else f"validation.max_quarantine is {share:g}"
    kind, whole = gxe.ExpectTableRowCountToBeBetween, rows + intake.set_aside
    yield _rule(kind, "quarantine", WARNING, seen, "quarantine.jsonl lists them", min_value=whole)
    yield _rule(
        kind, "quarantine limit", CRITICAL, seen, f"mend the rows that quarantine.jsonl lists ({why})",
        min_value=whole - math.floor(share * intake.read),
    )  # fmt: skip


def _texts(task: Task) -> Iterator[Expectation]:
    yield _rule(
        gxe.ExpectTableColumnsToMatchOrderedList, "schema", CRITICAL, "the columns are {observed}",
        "run the stage again", column_list=checked_schema(task).names,
    )  # fmt: skip
    for column in sentence_columns(task):
        yield _rule(
            gxe.ExpectColumnValuesToNotBeNull, "nulls", CRITICAL, f"{{bad}} of {{rows}} rows have no {column}",
            "mend the raw rows", column=column,
        )  # fmt: skip
        yield _rule(
            gxe.ExpectColumnValuesToNotMatchRegex, "encoding", WARNING,
            f"{{bad}} of {{rows}} rows look wrongly decoded in {column} (as â€™ for an apostrophe)",
            "decode the source again, as UTF-8", column=column, regex=MOJIBAKE,
        )  # fmt: skip
    length = gxe.ExpectColumnValuesToBeBetween
    yield _rule(
        length, "length", WARNING, f"{{bad}} of {{rows}} texts have more than {LONGEST:,} characters",
        "look for lost line ends", column="characters", min_value=1, max_value=LONGEST,
    )  # fmt: skip
    yield _rule(
        length, "long tail", WARNING, f"{{bad}} of {{rows}} texts have more than {CUT:,} characters",
        "encoders cut what is beyond preprocessing.max_length", column="characters", max_value=CUT, mostly=0.99,
    )  # fmt: skip
    yield _rule(
        gxe.ExpectColumnValuesToBeUnique, "duplicates", WARNING, "{bad} of {rows} rows share their text with another",
        "remove repeats if they are unwanted", column="text_key",
    )  # fmt: skip


def _labels(task: Task) -> Iterator[Expectation]:
    yield _rule(
        gxe.ExpectColumnValuesToNotBeNull, "nulls", CRITICAL, "{bad} of {rows} rows have no label",
        "mend the raw rows", column="label",
    )  # fmt: skip
    yield _rule(
        gxe.ExpectColumnValuesToBeBetween, "contradictory labels", WARNING,
        "{bad} of {rows} rows have a text that also stands there with another label",
        "decide on one label", column="labels_of_text", max_value=1,
    )  # fmt: skip
    yield _rule(
        gxe.ExpectColumnUniqueValueCountToBeBetween, "one class only", CRITICAL,
        "{observed} different labels", "with one label there is nothing to learn or to measure: give rows with others",
        column="label", min_value=2,
    )  # fmt: skip
    yield from _scores(task) if task.kind == "regression" else _classes(task)


def _classes(task: Task) -> Iterator[Expectation]:
    classes = range(len(task.labels))
    yield _rule(
        gxe.ExpectColumnValuesToBeInSet, "label set", CRITICAL, "{bad} of {rows} labels are unknown",
        "mend the raw rows", column="label", value_set=list(classes),
    )  # fmt: skip
    for label in classes:
        yield _rule(
            gxe.ExpectColumnValuesToBeInSet, "class balance", WARNING,
            f"{{good}} of {{rows}} rows are {task.label_names[label]}", "collect more of them, and gate on f1",
            column="label", value_set=[label], mostly=SMALLEST_CLASS / len(classes),
        )  # fmt: skip


def _scores(task: Task) -> Iterator[Expectation]:
    assert task.score_range is not None  # every regression has one
    low, high = task.score_range
    yield _rule(
        gxe.ExpectColumnValuesToBeBetween, "score range", CRITICAL,
        f"{{bad}} of {{rows}} scores are not between {low:g} and {high:g}",
        "mend the raw rows", column="label", min_value=low, max_value=high,
    )  # fmt: skip


def _unlabelled(task: Task) -> Iterator[Expectation]:
    yield _rule(
        gxe.ExpectColumnValuesToBeNull, "unlabelled", CRITICAL, "{bad} of {rows} test rows carry a label",
        "run the stage again", column="label",
    )  # fmt: skip
    if task.test_rows is not None:
        yield _rule(
            gxe.ExpectTableRowCountToEqual, "published row count", WARNING,
            f"{{observed}} rows; the published file has {task.test_rows:,}",
            "a submission is accepted for the published rows only", value=task.test_rows,
        )  # fmt: skip


def _overlap(limits: Validation) -> Iterator[Expectation]:
    seen, share = "{bad} of {rows} rows also stand in train", limits.max_overlap
    same = {"column": "overlaps", "value_set": [False]}
    kind = gxe.ExpectColumnValuesToBeInSet
    yield _rule(kind, "overlap", WARNING, seen, "they were removed from train: overlap.jsonl", **same)
    yield _rule(
        kind, "overlap limit", CRITICAL, seen,
        f"train and this split are not independent: split the data again, or raise validation.max_overlap ({share:g})",
        mostly=1 - share, **same,
    )  # fmt: skip
