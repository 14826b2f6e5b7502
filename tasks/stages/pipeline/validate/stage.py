"""The stage validate: read the splits, quarantine unusable rows, remove overlaps, check the rules, and report."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from include.artifacts import write_json
from include.experiment import Experiment
from include.glue import SPLITS, Task
from include.runs import Run
from include.stages import ExitCode
from tasks.context import Context, Outcome
from tasks.sources import Source, open_source
from tasks.sources.quarantine import Quarantine, QuarantineSummary
from tasks.stages.pipeline.validate.rule_result import RuleResult

SPARK_FROM = 1_000_000  # rows; with fewer rows, pandas finishes before Spark has started
DATA_DOCS = "data_docs"
#: The rules that fail because the limit of another one is exceeded, by that one's name.
_FOLLOWS = {
    "quarantine limit": ("quarantine", "row count", "one class only", "class balance", "label balance"),
    "overlap limit": ("overlap",),
}

log = logging.getLogger(__name__)


def plan(experiment: Experiment, run: Run) -> Source:
    """Open the source. Its fingerprint changes whenever the raw data changes."""
    return open_source(experiment)


def run(context: Context, source: Source) -> Outcome:
    """Write the three tables, the quarantine and the report.

    Returns:
        The outcome, with the exit code BAD_INPUT if a critical rule fails.
    """
    from tasks.stages.pipeline.validate.report import write_index

    experiment, output = context.experiment, context.output
    # The scratch folder is inside the store, so that the executors of a cluster can read it.
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=output) as scratch:
        summaries = _read(experiment, source, Path(scratch), output)
        rows = _compare(experiment, source, Path(scratch), output)
        for split in {"dev", "test"} & set(source.splits) if experiment.data.keep else ():
            _keep(experiment.data.keep, source, split, output)
        checked = {split: rows[split] for split in source.splits}
        findings = _check(experiment, summaries, checked, Path(scratch), output)
    write_index(output / DATA_DOCS, f"{experiment.task.name} from {experiment.data.source}", checked, findings)
    write_json(output / "validation.json", {"rules": [asdict(finding) for finding in findings]})
    set_aside = sum(summary.set_aside for summary in summaries.values())
    removed = summaries["train"].read - summaries["train"].set_aside - rows["train"]
    remarks = [remark for split in SPLITS for remark in source.remarks(split)]
    remarks += _unlearnable(output / "train.parquet", experiment.task)
    overlap = {finding.split: finding.observed for finding in findings if finding.rule == "overlap"}
    counts = {"rows": rows, "quarantined": set_aside, "overlap_removed": removed, "overlap": overlap}
    return _outcome(counts, remarks, findings)


def _read(experiment: Experiment, source: Source, scratch: Path, output: Path) -> dict[str, QuarantineSummary]:
    """Write a draft of each split, and one quarantine for all of them."""
    from tasks.stages.pipeline.validate.tables import read_split

    with (output / "quarantine.jsonl").open("w", encoding="utf-8") as stream:
        return {
            split: read_split(
                source, split, experiment.task, _draft(scratch, split), Quarantine(stream, split, source.file(split))
            )
            for split in SPLITS
        }


def _compare(experiment: Experiment, source: Source, scratch: Path, output: Path) -> dict[str, int]:
    """Write the tables, without train rows that also occur in dev or test, and return their numbers of rows."""
    from tasks.stages.pipeline.validate.overlap import find_facts, write_overlap
    from tasks.stages.pipeline.validate.tables import finish_split

    facts = find_facts({split: _draft(scratch, split) for split in SPLITS})
    write_overlap(output / "overlap.jsonl", _draft(scratch, "train"), facts["train"], source.file("train"))
    return {
        split: finish_split(
            _draft(scratch, split), experiment.task, facts[split],
            checked=_checked(scratch, split), table=output / f"{split}.parquet",
        )
        for split in SPLITS
    }  # fmt: skip


def _unlearnable(train: Path, task: Task) -> list[str]:
    """Return one sentence for each class that no training row has."""
    if task.kind != "classification":
        return []
    there = set(pq.read_table(train, columns=["label"])["label"].to_pylist())
    return [
        f"no row of train has the label {name!r}, so the model cannot learn it: add some, or remove it from data.labels"
        for label, name in enumerate(task.label_names)
        if label not in there
    ]


def _keep(columns: Sequence[str], source: Source, split: str, output: Path) -> None:
    """Write kept-SPLIT.parquet for evaluate and predict: the columns of data.keep with the number of each row.

    If there is a test file, the dev file may lack some of them.
    """
    from tasks.sources.kept import kept_columns

    rows = pq.read_table(output / f"{split}.parquet", columns=["row"])["row"]
    partial = split == "dev" and "test" in source.splits
    kept = kept_columns(source.paths[split], columns, rows.to_numpy(), source.dialect, partial)
    table = pa.table([rows, *kept.columns], names=["row", *kept.column_names])
    pq.write_table(table, output / f"kept-{split}.parquet")


def _check(
    experiment: Experiment, summaries: dict[str, QuarantineSummary], rows: dict[str, int], scratch: Path, output: Path
) -> list[RuleResult]:
    from tasks.stages.pipeline.validate.gx import check  # which takes seconds to import
    from tasks.stages.pipeline.validate.suite import rules

    task, limits = experiment.task, experiment.validation
    suites = {split: rules(task, split, limits, summaries[split], left) for split, left in rows.items()}
    with _frames(experiment, scratch, rows) as frames:
        return check(frames, suites, output / DATA_DOCS)


@contextmanager
def _frames(experiment: Experiment, scratch: Path, rows: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Open the checked tables as data frames of the engine that the experiment or the number of rows selects."""
    engine = experiment.validation.engine
    if engine == "spark" or (engine == "auto" and sum(rows.values()) >= SPARK_FROM):
        from tasks.spark import read_parquet, session

        with session(experiment, "validate") as spark:
            yield {split: read_parquet(spark, _checked(scratch, split)) for split in rows}
    else:
        import pandas as pd

        yield {split: pd.read_parquet(_checked(scratch, split)) for split in rows}


def _outcome(result: dict[str, Any], remarks: list[str], findings: list[RuleResult]) -> Outcome:
    failed = _causes([finding for finding in findings if not finding.success])
    warnings = remarks + [finding.message for finding in failed if finding.severity == "warning"]
    critical = [finding.message for finding in failed if finding.severity == "critical"]
    for warning in warnings:
        log.warning("%s", warning)
    files = {"quarantine": result["quarantined"], "overlap": result["overlap_removed"]}
    listed = {name: f"{name}.jsonl" for name, rows in files.items() if rows}
    result |= {"warnings": warnings, "files": {"data_docs": f"{DATA_DOCS}/index.html", **listed}}
    if critical:
        return Outcome(result, ExitCode.BAD_INPUT, f"the data cannot be used. {'. '.join(critical)}")
    return Outcome(result)


def _causes(failed: list[RuleResult]) -> list[RuleResult]:
    """Leave out what follows from another failure of the split: too few rows, where too many were set aside."""
    told = {(finding.split, finding.rule) for finding in failed}
    return [
        finding
        for finding in failed
        if not any((finding.split, cause) in told and finding.rule in rules for cause, rules in _FOLLOWS.items())
    ]


def _draft(scratch: Path, split: str) -> Path:
    return scratch / f"{split}.draft.parquet"


def _checked(scratch: Path, split: str) -> Path:
    return scratch / f"{split}.checked.parquet"
