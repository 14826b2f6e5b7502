"""The stage validate: read the splits, quarantine unusable rows, remove overlaps, check the rules, and report."""

from __future__ import annotations

import logging
import tempfile
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from include.artifacts import write_json
from include.experiment import Experiment
from include.glue import SPLITS, Task
from include.runs import Run
from include.stages import ExitCode
from tasks.context import Context, Outcome
from tasks.sources import Source, open_source
from tasks.workers import is_for_spark

if TYPE_CHECKING:
    from tasks.stages.pipeline.validate.report import RuleResult
    from tasks.stages.pipeline.validate.tables import Tables

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
    """Write the three tables, the quarantine and the report."""
    from tasks.stages.pipeline.validate.kept_columns import write_kept
    from tasks.stages.pipeline.validate.report import write_index

    experiment, output, task = context.experiment, context.output, context.experiment.task
    # The scratch folder is inside the store, so that the executors of a cluster can read it.
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=output) as folder:
        scratch = Path(folder)
        with _tables(experiment, source, scratch, output) as tables:
            if experiment.data.keep:
                write_kept(experiment.data.keep, source, output)
            from tasks.stages.pipeline.validate.rules import check, rules  # which takes seconds to import

            summaries, rows, limits = tables.summaries, tables.rows, experiment.validation
            checked = {split: rows[split] for split in source.splits}
            suites = {split: rules(task, split, limits, summaries[split], left) for split, left in checked.items()}
            findings = check(tables.frames, suites, output / DATA_DOCS)
    write_index(output / DATA_DOCS, f"{task.name} from {experiment.data.source}", checked, findings)
    write_json(output / "validation.json", {"rules": [asdict(finding) for finding in findings]})
    counts = {
        "rows": rows,
        "quarantined": sum(summary.set_aside for summary in summaries.values()),
        "overlap_removed": summaries["train"].read - summaries["train"].set_aside - rows["train"],
        "overlap": {finding.split: finding.observed for finding in findings if finding.rule == "overlap"},
    }
    if source.version:  # data.version repeats the run on it
        counts["table_version"] = source.version
    remarks = [remark for split in SPLITS for remark in source.remarks(split)]
    return _outcome(counts, remarks + _unlearnable(output / "train.parquet", task), findings)


def _tables(experiment: Experiment, source: Source, scratch: Path, output: Path) -> AbstractContextManager[Tables]:
    """Read the data with Spark or pandas."""
    from tasks.sources.pieces import about_rows

    rows = about_rows({file for split in source.splits for file in source.files.get(split, ())})
    if is_for_spark(experiment, "validate", rows):
        from tasks.stages.pipeline.validate import on_spark

        return on_spark.validated(experiment, source, scratch, output)
    from tasks.stages.pipeline.validate import one_process

    return one_process.validated(experiment.task, source, scratch, output)


def _unlearnable(train: Path, task: Task) -> list[str]:
    """Return one sentence for each class that no training row has."""
    import pyarrow.compute as pc
    from pyarrow import dataset

    if task.kind != "classification":
        return []
    batches = dataset.dataset(train).to_batches(columns=["label"])
    there = set().union(*(pc.unique(batch["label"]).to_pylist() for batch in batches))
    return [
        f"no row of train has the label {name!r}, so the model cannot learn it: add some, or remove it from data.labels"
        for label, name in enumerate(task.label_names)
        if label not in there
    ]


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
