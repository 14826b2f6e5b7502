"""What the stage export reads besides its inputs."""

from __future__ import annotations

import json

from include.experiment import Experiment
from include.runs import Run
from tasks.stages.pipeline.export.members import other_runs, refuse_failed_gate


def fingerprint(experiment: Experiment, run: Run) -> str:
    """Return the keys of the artifacts that the other runs of the submission currently refer to.

    Raises:
        BadInput: If this run or another run of the submission has failed its gate.
    """
    refuse_failed_gate(run)
    keys = {
        member.run: [member.validate.manifest.key, member.predict.manifest.key]
        for member in other_runs(experiment, run)
    }
    return json.dumps(keys, sort_keys=True)
