"""What a person writes for make's variables arrives as it was written."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make without its set-up."""
    command = ["make", "--old-file=setup-one-rank", *arguments]
    return subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)


def test_blanks_quotes_and_dollar_signs_arrive() -> None:
    done = make("prune", """SET=retention.days=$5 "x" it's [a`b` \\ retention.remove=maybe $(HOME)""")
    assert """retention.days = '$5 "x" it\\'s [a`b` \\\\': input should be a valid integer""" in done.stderr
    assert "retention.remove = 'maybe $(HOME)': input should be a valid boolean" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(("given", "named"), [("experiment=cola", "EXPERIMENT="), ("Text2=b", "TEXT2=")])
def test_a_variable_in_lower_case_is_not_ignored(given: str, named: str) -> None:
    done = make("prune", given)
    assert f"write {named} in capital letters" in done.stderr and done.returncode == 2
