"""What the end-to-end tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.make_run import SLICE, make_run


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which one run has succeeded."""
    home = tmp_path_factory.mktemp("home")
    code, output = make_run(home, *SLICE)
    assert code == 0, output
    return home
