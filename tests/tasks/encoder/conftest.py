"""What the tests of loading share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tasks.encoder.samples import tiny_encoder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a tiny encoder, which a test may change."""
    return tiny_encoder(tmp_path / "encoder")
