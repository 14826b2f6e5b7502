"""What the stage score reads besides its inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from include.artifacts import sha256
from include.experiment import Experiment
from include.runs import Run
from include.stages import BadInput
from tasks.encoder.loading import read_head
from tasks.inference.chosen_model import check_texts, chosen
from tasks.sources.chunks import table_files
from tasks.sources.formats import format_of


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the model, and a digest of the table's files. A table of a database is read once in each run."""
    scoring = experiment.scoring
    if not scoring.input:
        raise BadInput("scoring.input is empty: name the table to score, for example reviews.csv")
    files, model = [] if scoring.is_database else table_files(scoring.input), chosen(experiment, run, "scoring")
    check_texts(experiment, read_head(Path(model.trained.folder)), model, "scoring")
    table = digest_of(files) if files else run.folder.name
    return json.dumps({"table": table, "model": model.as_json()}, sort_keys=True)


def digest_of(files: Sequence[Path]) -> str:
    """Return a digest of a table's files."""
    digests = [f"{format_of(file)} {sha256(file)}" for file in files]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
