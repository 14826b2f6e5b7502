"""The home that scripts/airflow.sh makes: closed to other users, under its own path, with an Airflow that ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from include.folders import check_home
from include.stages import BadInput

REPOSITORY = Path(__file__).parents[2]
#: Stands in for Airflow's command line: its process has another one, which ends later than itself.
AIRFLOW = """#!/usr/bin/env bash
[ "$1" = standalone ] || exit 0
(trap 'sleep 0.3; echo saved; exit' TERM; echo $$ $BASHPID; while :; do sleep 0.05; done) & # their numbers
wait
"""
ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a stand-in for Airflow."""
    for file in ("scripts/airflow.sh", "scripts/home.sh", "requirements/airflow.lock"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / file, tmp_path / file)
    tools = tmp_path / ".venv/airflow/bin"
    tools.mkdir(parents=True)
    (tools / "airflow").write_text(AIRFLOW)
    (tools / "airflow").chmod(0o755)
    return tmp_path


def command(checkout: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SPARK_BERT"))}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [checkout / "scripts/airflow.sh", *arguments],
        text=True, stdout=pipe, stderr=pipe, env=environment | {"AIRFLOW__API__PORT": "8081"},
        preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in ENDINGS],  # nohup ignores one
    )  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_page_takes_its_processes_with_it(checkout: Path, ending: signal.Signals) -> None:
    with command(checkout, "ui") as server:
        assert server.stdout
        numbers = [int(number) for number in server.stdout.readline().split()]
        server.send_signal(ending)
        assert server.stdout.read() == "saved\n"
    assert server.returncode == 0 and len(numbers) == 2
    assert not [number for number in numbers if psutil.pid_exists(number)]


def test_an_airflow_that_does_not_start_says_so(checkout: Path) -> None:
    (checkout / ".venv/airflow/bin/airflow").write_text("#!/bin/sh\n[ $1 = db ] || exit 3\n")
    assert command(checkout, "ui").wait() == 3


def test_links_in_notices_lead_to_the_page(checkout: Path) -> None:
    printed, _ = command(checkout, "env").communicate()
    assert "AIRFLOW__API__BASE_URL=http://localhost:8081\n" in printed


def test_no_other_user_reads_databases_passwords_and_rows(checkout: Path) -> None:
    (checkout / "work/airflow").mkdir(parents=True)
    for folder in ("work", "work/airflow"):
        (checkout / folder).chmod(0o755)
    assert command(checkout, "true").wait() == 0
    assert [(checkout / folder).stat().st_mode & 0o777 for folder in ("work", "work/airflow")] == [0o700, 0o700]


def test_a_copied_or_moved_home_is_refused_and_the_first_stays_as_it_is(checkout: Path) -> None:
    home = checkout / "work"
    assert [command(checkout, "true").wait() for _ in range(2)] == [0, 0]
    check_home(home)
    shutil.copytree(home, checkout / "copy")
    with pytest.raises(BadInput, match=rf"copy was made as {home} and then copied or moved: .* SPARK_BERT_HOME"):
        check_home(checkout / "copy")
    home.rename(checkout / "first")
    (checkout / "copy").rename(home)  # in the place of the first one, a copy is as good as it
    check_home(home)
    shutil.rmtree(home)
    with pytest.raises(BadInput, match=f"write ln -s {checkout}/first {home}"):
        check_home(checkout / "first")
    done = subprocess.run([checkout / "scripts/home.sh", checkout / "first"], capture_output=True, text=True)
    assert done.returncode == 2 and f"write ln -s {checkout}/first {home}" in done.stderr and not home.exists()
    home.symlink_to(checkout / "first")
    check_home(checkout / "first")
    assert command(checkout, "true").wait() == 0


def test_starts_at_once_and_an_empty_note_of_the_path_refuse_no_home(checkout: Path) -> None:
    home = checkout / "home"
    home.mkdir()
    (home / ".path").touch()  # as a full disk leaves it
    starts = [subprocess.Popen([checkout / "scripts/home.sh", home]) for _ in range(20)]
    assert {start.wait() for start in starts} == {0}
    assert (home / ".path").read_text() == str(home) and list(home.iterdir()) == [home / ".path"]
    home.chmod(0o750)
    assert subprocess.run([checkout / "scripts/home.sh", home]).returncode == 0
    assert home.stat().st_mode & 0o777 == 0o750  # opened by somebody who knows why
