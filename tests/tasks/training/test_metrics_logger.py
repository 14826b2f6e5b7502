from __future__ import annotations

from pathlib import Path

from tasks.training.metrics_logger import METRICS, MetricsLogger


def test_a_checkpoint_replaces_what_was_written_since(tmp_path: Path) -> None:
    logger = MetricsLogger(tmp_path, steps=2, terminal=False)
    logger.load_state_dict({"written": "written before\n" * 3, "step": 2})
    logger.load_state_dict({"written": "kept\n", "step": 1})
    logger.close()
    assert (tmp_path / METRICS).read_bytes() == b"kept\n"
