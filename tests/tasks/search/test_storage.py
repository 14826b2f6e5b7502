from __future__ import annotations

from pathlib import Path

import pytest

from include.secrets import SEARCHES, SEARCHES_VARIABLE, VARIABLE
from include.stages import BadInput, Transient
from tasks.search.storage import FILE, Storage

NOWHERE = "postgresql://someone:secret@127.0.0.1:1/airflow"


def test_without_a_login_trials_lie_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))  # a folder without that file
    study = Storage(tmp_path, "one").open({"space": "a"})
    assert study.trials == [] and (tmp_path / "searches" / "one" / FILE).is_file()
    with pytest.raises(BadInput, match=r"the search one in .* has other data, settings, or another space"):
        Storage(tmp_path, "one").open({"space": "b"})


@pytest.mark.parametrize("place", ["file", "variable"])
def test_a_database_that_does_not_answer_is_named_without_its_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if place == "file":
        (tmp_path / SEARCHES).write_text(f"{NOWHERE}\n")
        monkeypatch.setenv(VARIABLE, str(tmp_path))
    else:
        monkeypatch.setenv(SEARCHES_VARIABLE, NOWHERE)
    with pytest.raises(Transient, match=r"the storage of the search one does not answer: .*refused") as error:
        Storage(tmp_path, "one").open({})
    assert "secret" not in str(error.value)


def test_another_database_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEARCHES_VARIABLE, "mysql://someone:secret@host/airflow")
    with pytest.raises(BadInput, match="write postgresql://user:password@host/database") as error:
        Storage(tmp_path, "one")
    assert "secret@" not in str(error.value)
