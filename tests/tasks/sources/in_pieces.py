"""Reads the files of every test in pieces of a few bytes as well, as executors do, and compares the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pytest

from include.stages import BadInput
from tasks.sources import Record, Source, pieces
from tasks.sources.files import OwnFiles
from tasks.sources.published import GlueFolder
from tasks.stages.pipeline.validate import on_spark
from tasks.staging import Staging, opened

_SIZES = (1, 23, 1 << 24)  # bytes
_Read = Callable[[Any, str], Iterator[Record]]


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare what OwnFiles and GlueFolder read with the rows of pieces."""
    for kind, name in ((OwnFiles, "_records"), (GlueFolder, "records")):
        monkeypatch.setattr(kind, name, _compared(getattr(kind, name), monkeypatch))
    monkeypatch.setattr(on_spark, "for_each", _for_each)


def _compared(read: _Read, monkeypatch: pytest.MonkeyPatch) -> _Read:
    at_work = False

    def records(self: Source, split: str) -> Iterator[Record]:
        nonlocal at_work
        if at_work:  # a split without rows is read to find out why
            yield from read(self, split)
            return
        at_work = True
        whole, error = _caught(read(self, split))
        remarks = [] if error else self.remarks(split)
        for size in _SIZES:
            monkeypatch.setattr(pieces, "SIZE", size)
            found, problem = _caught(_in_pieces(self, split))
            assert str(problem) == str(error), size
            if error is None:
                assert list(map(asdict, found)) == list(map(asdict, whole)), size
                assert self.remarks(split) == remarks
        at_work = False
        yield from whole
        if error:
            raise error

    return records


def _caught(records: Iterator[Record]) -> tuple[list[Record], BadInput | None]:
    found: list[Record] = []
    try:
        found.extend(records)
    except BadInput as error:
        return found, error
    return found, None


def _in_pieces(source: Source, split: str) -> Iterator[Record]:
    source._blank.clear()
    spark: Any = None
    inputs, problem = on_spark.find_inputs(spark, Staging(), source, (split,))
    for which in inputs:
        with opened(which.address) as stream:
            yield from which.layout.records(which.piece.file, which.piece.part(stream), which.piece.row)
    if problem:
        raise problem


def _for_each(spark: Any, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    found = []
    for item in items:
        try:
            found.append(work(item))
        except BadInput as error:
            found.append(error)
    return found
