"""What a stage is handed, and what it hands back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from include.artifacts import Artifact, Manifest
from include.experiment import Experiment
from include.runs import Run
from include.stages import ExitCode


@dataclass(frozen=True)
class Context:
    """A stage's surroundings.

    Attributes:
        experiment: what to do.
        run: the run that asked; a stage reads other runs through it, and never writes to it.
        inputs: stage name to committed artifact, as the stage's row in include/stages.py lists them.
        output: an empty folder; what is in it when the stage returns becomes the artifact.
        checkpoints: a folder, for the stage to make, that outlives a stop: the same stage finds it again and goes on
            from there. It is removed when the artifact is committed. None: nothing outlives a stop.
        manifest: what the artifact will say of itself, as far as it is known: its key, fingerprint and revision.
        tell_steps: tells those who watch the run how many steps the stage will take.
    """

    experiment: Experiment
    run: Run
    inputs: Mapping[str, Artifact]
    output: Path
    checkpoints: Path | None = None
    manifest: Manifest | None = None
    tell_steps: Callable[[int], None] = lambda steps: None


@dataclass(frozen=True)
class Outcome:
    """How a stage ended: its result line, and for a refusal the exit code and the reason.

    A stage that refuses with evidence to show (a validation report, a gate's verdict) returns an outcome with
    an exit code; the evidence is committed, and no later stage accepts it. One that has none raises StageError.
    """

    result: dict[str, Any] = field(default_factory=dict)
    exit_code: ExitCode = ExitCode.DONE
    message: str = ""


def cache_folder() -> Path:
    """Where fetched corpora and encoders lie: $SPARK_BERT_CACHE, else the user's cache folder."""
    named = os.environ.get("SPARK_BERT_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spark-bert"
