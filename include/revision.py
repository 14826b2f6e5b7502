"""Which revision of the code runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def revision() -> str:
    """Return the code's git revision: $SPARK_BERT_REVISION (set in images), else git's word, else "unknown"."""
    named = os.environ.get("SPARK_BERT_REVISION")
    if named:
        return named
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
