"""Sees every stage's container of one home as it starts, for it is gone when the stage has ended."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Container = dict[str, Any]


@contextmanager
def watched(home: Path) -> Iterator[list[Container]]:
    """What `docker inspect` says of the containers that start meanwhile, in order."""
    seen: list[Container] = []
    command = ["docker", "events", "--filter", "event=start", "--filter", "label=spark-bert.stage"]
    events = subprocess.Popen([*command, "--format", "{{.ID}}"], stdout=subprocess.PIPE, text=True)

    def look() -> None:
        assert events.stdout is not None
        for line in events.stdout:
            found = inspect(line.strip())
            if f"SPARK_BERT_HOME={home}" in found["Config"]["Env"]:
                seen.append(found)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        events.terminate()
        watcher.join(timeout=10)


def inspect(container: str) -> Container:
    """`docker inspect`."""
    done = subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True)
    found: list[Container] = json.loads(done.stdout)
    return found[0]


def remaining(home: Path) -> list[str]:
    """The ids of the stages' containers that are there, running or not."""
    command = ["docker", "ps", "--all", "--quiet", "--filter", "label=spark-bert.stage"]
    ids = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [one for one in ids if f"SPARK_BERT_HOME={home}" in inspect(one)["Config"]["Env"]]
