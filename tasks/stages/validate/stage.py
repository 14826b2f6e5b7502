"""The stage validate: read, set aside, compare the splits, hold each against its suite, report."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from include.artifacts import write_json
from include.experiment import Experiment
from include.glue import SPLITS
from include.runs import Run
from include.stages import ExitCode
from tasks.context import Context, Outcome
from tasks.sources import Source, open_source
from tasks.sources.kept import kept_columns
from tasks.sources.quarantine import Intake, Quarantine
from tasks.stages.validate.finding import Finding
from tasks.stages.validate.overlap import find_facts, write_overlap
from tasks.stages.validate.report import write_index
from tasks.stages.validate.tables import finish_split, read_split

SPARK_FROM = 1_000_000  # rows; below it pandas is done before Spark has started
DATA_DOCS = "data_docs"

log = logging.getLogger(__name__)


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Changes when the raw data does. Raises BadInput when it is not there."""
    return open_source(experiment).fingerprint()


def run(context: Context) -> Outcome:
    """Write the three tables, the quarantine and the report; refuse when a critical rule fails."""
    experiment, output = context.experiment, context.output
    source = open_source(experiment)
    # Below the store, where the executors of a cluster find it too.
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=output) as scratch:
        intakes = _read(experiment, source, Path(scratch), output)
        rows = _compare(experiment, source, Path(scratch), output)
        if experiment.data.keep:
            _keep(experiment.data.keep, source.paths["test"], output)
        findings = _check(experiment, intakes, rows, Path(scratch), output)
    write_index(output / DATA_DOCS, f"{experiment.task.name} from {experiment.data.source}", rows, findings)
    write_json(output / "validation.json", {"rules": [asdict(finding) for finding in findings]})
    set_aside = sum(intake.set_aside for intake in intakes.values())
    removed = intakes["train"].read - intakes["train"].set_aside - rows["train"]
    remarks = [remark for split in SPLITS for remark in source.remarks(split)]
    overlap = {finding.split: finding.observed for finding in findings if finding.rule == "overlap"}
    counts = {"rows": rows, "quarantined": set_aside, "overlap_removed": removed, "overlap": overlap}
    return _outcome(counts, remarks, findings)


def _read(experiment: Experiment, source: Source, scratch: Path, output: Path) -> dict[str, Intake]:
    """A draft of each split, and one quarantine for all."""
    with (output / "quarantine.jsonl").open("w", encoding="utf-8") as stream:
        return {
            split: read_split(
                source, split, experiment.task, _draft(scratch, split), Quarantine(stream, split, source.file(split))
            )
            for split in SPLITS
        }


def _compare(experiment: Experiment, source: Source, scratch: Path, output: Path) -> dict[str, int]:
    """The tables, without the train rows that stand in dev or test too; rows of each."""
    facts = find_facts({split: _draft(scratch, split) for split in SPLITS})
    write_overlap(output / "overlap.jsonl", _draft(scratch, "train"), facts["train"], source.file("train"))
    return {
        split: finish_split(
            _draft(scratch, split), experiment.task, facts[split],
            checked=_checked(scratch, split), table=output / f"{split}.parquet",
        )
        for split in SPLITS
    }  # fmt: skip


def _keep(columns: Sequence[str], file: Path, output: Path) -> None:
    """Write kept.parquet: the columns of data.keep under the number of their test row, for predict."""
    rows = pq.read_table(output / "test.parquet", columns=["row"])
    kept = kept_columns(file, columns, rows["row"].to_numpy())
    pq.write_table(pa.table([rows["row"], *kept.columns], names=["row", *columns]), output / "kept.parquet")


def _check(
    experiment: Experiment, intakes: dict[str, Intake], rows: dict[str, int], scratch: Path, output: Path
) -> list[Finding]:
    from tasks.stages.validate.gx import check  # takes seconds to import, which a finished stage need not spend
    from tasks.stages.validate.suite import rules

    task, limits = experiment.task, experiment.validation
    suites = {split: rules(task, split, limits, intakes[split], rows[split]) for split in SPLITS}
    with _frames(experiment, scratch, sum(rows.values())) as frames:
        return check(frames, suites, output / DATA_DOCS)


@contextmanager
def _frames(experiment: Experiment, scratch: Path, rows: int) -> Iterator[dict[str, Any]]:
    """What the rules look at, on the engine that the experiment names or the number of rows asks for."""
    engine = experiment.validation.engine
    if engine == "spark" or (engine == "auto" and rows >= SPARK_FROM):
        from tasks.spark import session

        with session(experiment, "validate") as spark:
            yield {split: spark.read.parquet(str(_checked(scratch, split))) for split in SPLITS}
    else:
        yield {split: pd.read_parquet(_checked(scratch, split)) for split in SPLITS}


def _outcome(result: dict[str, Any], remarks: list[str], findings: list[Finding]) -> Outcome:
    failed = [finding for finding in findings if not finding.success]
    warnings = remarks + [finding.message for finding in failed if finding.severity == "warning"]
    critical = [finding.message for finding in failed if finding.severity == "critical"]
    for warning in warnings:
        log.warning("%s", warning)
    result |= {"warnings": warnings, "files": {"data_docs": f"{DATA_DOCS}/index.html"}}
    if critical:
        return Outcome(result, ExitCode.BAD_INPUT, f"the data cannot be used. {'. '.join(critical)}")
    return Outcome(result)


def _draft(scratch: Path, split: str) -> Path:
    return scratch / f"{split}.draft.parquet"


def _checked(scratch: Path, split: str) -> Path:
    return scratch / f"{split}.checked.parquet"
