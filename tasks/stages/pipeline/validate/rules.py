"""The rules of a split, derived from the task's entry in the registry, and their check by Great Expectations.

A critical rule stops the run, a warning is reported. The `meta` of a rule says what was observed, and the remedy.
"""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import great_expectations as gx
from great_expectations import expectations as gxe
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.data_context.data_context.abstract_data_context import AbstractDataContext
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.metadata_types import FailureSeverity

from include.fields.data import Validation
from include.glue import Task
from tasks.sources.quarantine import QuarantineSummary
from tasks.stages.pipeline.validate.report import RuleResult
from tasks.stages.pipeline.validate.tables import checked_schema

CRITICAL, WARNING = FailureSeverity.CRITICAL, FailureSeverity.WARNING
LONGEST = 10_000  # characters; a longer text is more likely a broken file than a sentence
CUT = 2_000  # characters that fill the 512 positions of BERT, at about 4 characters per token
SMALLEST_CLASS = 0.2  # of an even share: with two classes, one row in ten
RAREST_LABEL = 0.01  # of the rows of a multi-label task: each label is a question of its own, to which no is usual
# U+FFFD, and UTF-8 that was decoded as Latin-1 and encoded again.
MOJIBAKE = "\ufffd|Ã[\u0080-\u00bf]|Â[\u00a0-\u00bf]|â€"
# Great Expectations does not escape examples of the data in its pages, so a text could contain a script.
_RESULT_FORMAT = {"result_format": "SUMMARY", "partial_unexpected_count": 0}
_SITE = "validate"

# This logger has its own level and would log the path of a temporary folder.
logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)


def check(frames: Mapping[str, Any], suites: Mapping[str, Sequence[Expectation]], docs: Path) -> list[RuleResult]:
    """Check the frame of each split, of pandas or Spark, against its suite, and write Great Expectations' pages."""
    context = _context(docs)
    spark = any(hasattr(frame, "sparkSession") for frame in frames.values())
    sources = context.data_sources
    source = sources.add_spark("data", persist=False) if spark else sources.add_pandas("data")
    findings = []
    for split, frame in frames.items():
        batch = source.add_dataframe_asset(split).add_batch_definition_whole_dataframe(split)
        suite = context.suites.add(gx.ExpectationSuite(name=split, expectations=list(suites[split])))
        definition = context.validation_definitions.add(gx.ValidationDefinition(name=split, data=batch, suite=suite))
        outcome = definition.run(batch_parameters={"dataframe": frame}, result_format=_RESULT_FORMAT)
        findings += [_rule_result(split, result) for result in outcome.results]
    context.build_data_docs(site_names=[_SITE], build_index=False)
    shutil.rmtree(docs / "static", ignore_errors=True)  # 4 MB of fonts and images that no page uses
    return findings


def _context(docs: Path) -> AbstractDataContext:
    context = gx.get_context(mode="ephemeral")
    context.variables.analytics_enabled = False
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs.absolute())}
    site: Any = {"class_name": "SiteBuilder", "show_how_to_buttons": False, "store_backend": backend}
    context.add_data_docs_site(_SITE, site)
    return context


def _rule_result(split: str, result: ExpectationValidationResult) -> RuleResult:
    config, values = result.expectation_config, result.result
    assert config is not None and config.meta is not None and config.severity is not None  # set by _rule
    meta = config.meta
    if "unexpected_count" in values:
        observed = int(values["unexpected_count"] or 0)  # Spark sums no rows to null
        rows = int(values["element_count"])
        seen = _fill(meta["seen"], bad=observed, good=rows - observed, rows=rows)
    elif "observed_value" in values:
        observed, rows = values["observed_value"], None
        seen = _fill(meta["seen"], observed=observed)
    else:
        raise RuntimeError(f"{split}: the rule {meta['rule']} could not be evaluated: {result.exception_info}")
    severity = config.severity.value
    return RuleResult(split, meta["rule"], severity, bool(result.success), observed, rows, seen, meta["remedy"])


def _fill(text: str, **values: Any) -> str:
    """Fill in placeholders like str.format, but leave other braces, which may come from the data, unchanged."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", f"{value:,}" if isinstance(value, int) else str(value))
    return text


def rules(task: Task, split: str, limits: Validation, summary: QuarantineSummary, rows: int) -> list[Expectation]:
    """Return all rules of a split, of which `rows` rows are left after quarantine and removal of overlaps."""
    found = [*_quarantine(split, limits, summary, rows), *_texts(task)]
    found += _unlabeled(task) if split == "test" else _labels(task)
    return found if split == "train" else [*found, *_overlap(limits)]


def _rule(
    kind: type[Expectation], name: str, severity: FailureSeverity, seen: str, remedy: str, **options: Any
) -> Expectation:
    """Create an expectation with its name, the observation in words, and the remedy for a failure.

    `seen` may contain {bad}, {good} and {rows}, numbers of rows, or {observed} if the rule applies to the whole split.
    """
    meta = {"rule": name, "seen": seen, "remedy": remedy}
    return kind(severity=severity, meta=meta, notes=f"**{name}** ({severity.value})", **options)


def _quarantine(split: str, limits: Validation, summary: QuarantineSummary, rows: int) -> Iterator[Expectation]:
    """Yield rules on the number of rows that are left, which limit the quarantine, whose rows no frame has."""
    share = 0.0 if split == "test" else limits.max_quarantine
    seen = f"{summary.set_aside:,} of {summary.read:,} rows cannot be used{summary.examples}"
    why = "every test row needs a prediction" if split == "test" else f"validation.max_quarantine is {share:g}"
    kind, whole = gxe.ExpectTableRowCountToBeBetween, rows + summary.set_aside
    yield _rule(
        kind, "row count", CRITICAL, "{observed} usable rows", "add usable rows to the split", min_value=1
    )  # fmt: skip
    yield _rule(kind, "quarantine", WARNING, seen, f"quarantine.jsonl lists them{summary.hints}", min_value=whole)
    yield _rule(
        kind, "quarantine limit", CRITICAL, seen,
        f"correct the rows that quarantine.jsonl lists ({why}){summary.hints}",
        min_value=whole - math.floor(share * summary.read),
    )  # fmt: skip


def _texts(task: Task) -> Iterator[Expectation]:
    yield _rule(
        gxe.ExpectTableColumnsToMatchOrderedList, "schema", CRITICAL, "the columns are {observed}",
        "run the stage again", column_list=checked_schema(task).names,
    )  # fmt: skip
    for column in task.sentence_columns:
        yield _rule(
            gxe.ExpectColumnValuesToNotBeNull, "nulls", CRITICAL, f"{{bad}} of {{rows}} rows have no {column}",
            "correct the raw rows", column=column,
        )  # fmt: skip
        yield _rule(
            gxe.ExpectColumnValuesToNotMatchRegex, "encoding", WARNING,
            f"{{bad}} of {{rows}} rows seem to be wrongly decoded in {column} (such as â€™ for an apostrophe)",
            "decode the source again, as UTF-8", column=column, regex=MOJIBAKE,
        )  # fmt: skip
    length = gxe.ExpectColumnValuesToBeBetween
    yield _rule(
        length, "length", WARNING, f"{{bad}} of {{rows}} texts have more than {LONGEST:,} characters",
        "check the file for missing line ends", column="characters", min_value=1, max_value=LONGEST,
    )  # fmt: skip
    yield _rule(
        length, "long tail", WARNING, f"{{bad}} of {{rows}} texts have more than {CUT:,} characters",
        "preprocessing.max_length and preprocessing.long decide what becomes of long texts", column="characters",
        max_value=CUT, mostly=0.99,
    )  # fmt: skip
    yield _rule(
        gxe.ExpectColumnValuesToBeUnique, "duplicates", WARNING,
        "{bad} of {rows} rows share their text with another row",
        "remove the duplicates if they are unwanted", column="text_key",
    )  # fmt: skip


def _labels(task: Task) -> Iterator[Expectation]:
    yield _rule(
        gxe.ExpectColumnValuesToNotBeNull, "nulls", CRITICAL, "{bad} of {rows} rows have no label",
        "correct the raw rows", column="label",
    )  # fmt: skip
    yield _rule(
        gxe.ExpectColumnValuesToBeBetween, "contradictory labels", WARNING,
        "{bad} of {rows} rows have a text that also occurs with another label",
        "choose one label per text", column="labels_of_text", max_value=1,
    )  # fmt: skip
    yield _rule(
        gxe.ExpectColumnUniqueValueCountToBeBetween, "one class only", CRITICAL,
        "{observed} different labels", "a model needs at least two labels to learn from: add rows with other labels",
        column="label", min_value=2,
    )  # fmt: skip
    match task.kind:
        case "classification":
            yield from _classes(task)
        case "multilabel":
            yield from _label_sets(task)
        case "regression":
            yield from _scores(task)


def _classes(task: Task) -> Iterator[Expectation]:
    classes = range(len(task.labels))
    yield _rule(
        gxe.ExpectColumnValuesToBeInSet, "label set", CRITICAL, "{bad} of {rows} labels are unknown",
        "correct the raw rows", column="label", value_set=list(classes),
    )  # fmt: skip
    for label in classes:
        yield _rule(
            gxe.ExpectColumnValuesToBeInSet, "class balance", WARNING,
            f"{{good}} of {{rows}} rows are {task.label_names[label]}",
            "collect more of them, and use f1 for the gate and in training.best_by",
            column="label", value_set=[label], mostly=SMALLEST_CLASS / len(classes),
        )  # fmt: skip


def _label_sets(task: Task) -> Iterator[Expectation]:
    yield _rule(
        gxe.ExpectColumnValuesToMatchRegex, "label set", CRITICAL, "{bad} of {rows} rows have unknown labels",
        "correct the raw rows", column="label", regex=f"^[01]{{{len(task.labels)}}}$",
    )  # fmt: skip
    for place, name in enumerate(task.label_names):
        yield _rule(
            gxe.ExpectColumnValuesToMatchRegex, "label balance", WARNING,
            f"{{good}} of {{rows}} rows have the label {name}",
            "collect more of them, because a rare label is hard to learn and its F1 is uncertain",
            column="label", regex=f"^[01]{{{place}}}1", mostly=RAREST_LABEL,
        )  # fmt: skip


def _scores(task: Task) -> Iterator[Expectation]:
    assert task.score_range is not None  # every regression has one
    low, high = task.score_range
    yield _rule(
        gxe.ExpectColumnValuesToBeBetween, "score range", CRITICAL,
        f"{{bad}} of {{rows}} scores are not between {low:g} and {high:g}",
        "correct the raw rows", column="label", min_value=low, max_value=high,
    )  # fmt: skip


def _unlabeled(task: Task) -> Iterator[Expectation]:
    yield _rule(
        gxe.ExpectColumnValuesToBeNull, "unlabeled", CRITICAL, "{bad} of {rows} test rows have a label",
        "run the stage again", column="label",
    )  # fmt: skip
    if task.test_rows is not None:
        yield _rule(
            gxe.ExpectTableRowCountToEqual, "published row count", WARNING,
            f"{{observed}} rows, while the published file has {task.test_rows:,}",
            "GLUE accepts submissions for the published rows only", value=task.test_rows,
        )  # fmt: skip


def _overlap(limits: Validation) -> Iterator[Expectation]:
    seen, share = "{bad} of {rows} rows also occur in train", limits.max_overlap
    same = {"column": "overlaps", "value_set": [False]}
    kind = gxe.ExpectColumnValuesToBeInSet
    yield _rule(kind, "overlap", WARNING, seen, "they were removed from train and are listed in overlap.jsonl", **same)
    yield _rule(
        kind, "overlap limit", CRITICAL, seen,
        f"train and this split are not independent: split the data again, or raise validation.max_overlap ({share:g})",
        mostly=1 - share, **same,
    )  # fmt: skip
