from __future__ import annotations

from pathlib import Path

from tasks.training.journal import METRICS, Journal


def test_a_journal_that_has_written_goes_on_with_what_a_checkpoint_had(tmp_path: Path) -> None:
    journal = Journal(tmp_path, steps=2, terminal=False)
    journal.load("written before\n" * 3, step=2)
    journal.load("kept\n", step=1)
    journal.close()
    assert (tmp_path / METRICS).read_bytes() == b"kept\n"
