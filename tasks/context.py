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
from include.stages import STAGES, BadInput, ExitCode


@dataclass(frozen=True)
class Context:
    """A stage's surroundings."""

    experiment: Experiment
    run: Run  # through which a stage reads other runs; it never writes to it
    inputs: Mapping[str, Artifact]  # by stage, as the stage's row in include/stages.py lists them
    output: Path  # an empty folder; what is in it when the stage returns becomes the artifact
    checkpoints: Path  # a folder, for the stage to make, that a stopped stage finds again when it goes on
    manifest: Manifest  # what is known of it: the key, the fingerprint and the revision
    tell_steps: Callable[[int], None] = lambda steps: None  # tells those who watch the run the number of steps
    pause: float = 1  # the share of its steps after which a training pauses; its artifact does not depend on it

    @property
    def trained(self) -> Path:
        """The folder with what train has made. Raise BadInput if an earlier version of it has: the model says less."""
        artifact = self.inputs["train"]
        if artifact.manifest.version != STAGES["train"].version:
            raise BadInput(f"{artifact.path} was made by another version of the stage train: run train again")
        return artifact.path


@dataclass(frozen=True)
class Outcome:
    """How a stage ended: its result line, and for a refusal with evidence the exit code and the reason.

    The evidence, such as a verdict, is committed, and no later stage accepts it. Without any, raise StageError.
    """

    result: dict[str, Any] = field(default_factory=dict)
    exit_code: ExitCode = ExitCode.DONE
    message: str = ""


def cache_folder() -> Path:
    """Return the folder of fetched corpora and encoders: $SPARK_BERT_CACHE, else below the user's cache folder."""
    if named := os.environ.get("SPARK_BERT_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spark-bert"
