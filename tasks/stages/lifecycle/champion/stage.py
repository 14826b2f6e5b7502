"""The stage champion: write champion.json with the champion's version and the folder of its model."""

from __future__ import annotations

import json
import logging

from include.artifacts import write_json
from tasks.context import Context, Outcome

log = logging.getLogger(__name__)


def run(context: Context) -> Outcome:
    """Write the champion that `fingerprint` has found and verified. The version is "" if there is no champion yet."""
    assert context.manifest is not None  # set by the runner
    result = json.loads(context.manifest.fingerprint)
    train = context.run.store.path("train", result["train"])
    result["folder"] = str(train / "model") if result["version"] else ""
    write_json(context.output / "champion.json", result)
    log.info("the champion of %s: %s", result["model"], result["version"] or "none yet")
    return Outcome({**result, "files": {"champion": "champion.json"}})
