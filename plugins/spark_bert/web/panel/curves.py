"""The curves of a training, read bit by bit while it is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

from include.folders import open_file
from spark_bert.deployment.places import home
from spark_bert.web.panel.index import Row
from spark_bert.web.panel.records import artifact_key, mapping, open_artifact, parse, read_at_work, read_record

METRICS = "metrics.jsonl"
#: The stages that write curves, the most interesting one first.
CURVED = ("train", "pretrain")
_MOST = 1 << 20  # bytes in one answer


def read_curves(row: Row, source: str, offset: int) -> dict[str, Any]:
    """Return the lines that a training has written since a reader last asked.

    Args:
        row: the run.
        source: where the reader's lines are from; "" if it has none.
        offset: how many bytes of that source the reader has.

    Returns:
        The source and the stage that writes it, the new lines, the offset after them, and whether the reader has to
        forget its lines (`again`): the source is another one, or it became shorter because the training was resumed
        from a checkpoint. Without curves, the source is "".
    """
    for stage, found, file in _sources(row):
        with file:
            again = source != found or file.seek(0, 2) < offset
            start = 0 if again else offset
            file.seek(start)
            text = file.read(_MOST)
        whole = text[: text.rfind(b"\n") + 1]  # a line that is being written comes next time
        lines = list(filter(None, map(_line, whole.splitlines())))
        more = len(text) == _MOST
        end = start + len(whole)
        return {"source": found, "stage": stage, "again": again, "lines": lines, "offset": end, "more": more}
    return {"source": "", "stage": "", "again": bool(source), "lines": [], "offset": 0, "more": False}


def _sources(row: Row) -> Iterator[tuple[str, str, BinaryIO]]:
    """Yield the stage, the name, and the open file of each place with curves, the one that is being written first."""
    record = read_record(row.run)
    work = read_at_work(row.run) if row.state == "running" else {}
    for stage in CURVED:
        progress = work.get(stage, {}).get("progress")
        if isinstance(progress, str):
            with suppress(OSError):
                yield stage, f"checkpoints/{progress}", open_file(home() / "checkpoints", stage, progress, METRICS)
    for stage in CURVED:
        with suppress(OSError):
            yield stage, f"artifacts/{artifact_key(record, stage)}", open_artifact(record, stage, METRICS)


def _line(text: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        return mapping(parse(text))
    return {}
