"""What the end-to-end tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.make_run import SLICE, make_run


@pytest.fixture(scope="session")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A home in which one run has succeeded, and what that run printed."""
    home = tmp_path_factory.mktemp("home")
    code, output = make_run(home, *SLICE)
    assert code == 0, output
    return home, output


@pytest.fixture(scope="session")
def home(first_run: tuple[Path, str]) -> Path:
    """A home in which one run has succeeded."""
    return first_run[0]
