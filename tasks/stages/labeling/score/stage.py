"""The stage score: write the rows of a table with the predictions of a model, as Parquet and in the table's format.

First the table is taken in, which fixes its rows and their order; then it is scored in parts. Both are kept as
checkpoints, so that a run that was killed goes on with the parts that it lacks.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from include.artifacts import locked
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.context import Context, Outcome

if TYPE_CHECKING:
    from tasks.inference.chosen_model import Model

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The model, and what identifies the table.

    Attributes:
        table: a digest of the table's files; for a database, which is read once in each run, the name of the run.
        version: of a table of Delta Lake or Iceberg.
    """

    model: Model
    table: str
    version: str = ""

    def fingerprint(self) -> str:
        """Return the text that is part of the artifact's key."""
        return json.dumps({"model": json.dumps(asdict(self.model), sort_keys=True), "table": self.table})


def plan(experiment: Experiment, run: Run) -> Plan:
    """Return the model and what identifies the table."""
    from tasks.inference.chosen_model import chosen
    from tasks.sources.lake import scored_table
    from tasks.stages.labeling.score.table import scored_files, table_digest

    scoring = experiment.scoring
    if not scoring.input:
        raise BadInput("scoring.input is empty: name the table to score, for example reviews.csv")
    lake, files = scored_table(scoring), scored_files(scoring)
    model = chosen(experiment, run, "scoring")  # before the files are hashed, which may take long
    if lake is not None:
        return Plan(model, lake.identity, lake.version)
    return Plan(model, run.folder.name if scoring.is_database else table_digest(files))


def _with_version(experiment: Experiment, version: str) -> Experiment:
    """Return the experiment with the version of the table that the plan has found."""
    scoring = experiment.scoring.model_copy(update={"version": version})
    return experiment.model_copy(update={"scoring": scoring})


def run(context: Context, plan: Plan) -> Outcome:
    """Score the table. The result has the numbers of rows, and of those set aside by reason."""
    import pyarrow.parquet as pq

    from tasks.inference.parts import answered
    from tasks.stages.labeling.score.files import score_parts, write_files
    from tasks.stages.labeling.score.table import Counts, read_table

    experiment, kept = _with_version(context.experiment, plan.version), context.checkpoints
    with locked(kept):
        if not (kept / "table").exists():
            read_table(experiment, plan.model, plan.table, kept)
        counts = Counts.read(kept / "table")
        score_parts(experiment, plan.model, kept, counts.rows)
    files = write_files(experiment, kept, context.output)
    written = pq.ParquetFile(context.output / files["parquet"]).metadata.num_rows
    if written != counts.rows or written + counts.aside != counts.rows_in:
        raise Transient(f"{counts.rows_in} rows went in, {written} were scored and {counts.aside} set aside: try again")
    log.info("%d rows in, %d scored, %d set aside", counts.rows_in, written, counts.aside)
    result: dict[str, Any] = {"rows_in": counts.rows_in, "rows": written, "aside": counts.aside}
    result |= {"reasons": counts.reasons, "model_version": plan.model.version, "form": plan.model.trained.form}
    result |= {"table_version": plan.version} if plan.version else {}
    guard = plan.model.trained.guard(experiment.prediction)
    result |= answered([context.output / files["parquet"]], guard) | ({} if guard is None else {"risk": guard.says()})
    return Outcome(result | {"files": files})
