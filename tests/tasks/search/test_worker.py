"""Which trial a worker takes while others work on the same search."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState, create_trial

from include.artifacts import locked
from include.named_experiments import build
from include.runs import Run
from include.search_space import space_of
from include.secrets import SEARCHES_VARIABLE
from include.stages import BadInput
from tasks.search import rungs
from tasks.search.storage import Storage
from tasks.search.worker import Search, Worker
from tests.tasks.search.searches import values


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    root = tmp_path_factory.mktemp("home")
    experiment = build(values(root / "data", trials=3), "the test's experiment")
    return Search("one", experiment, space_of(experiment), Run(root / "runs" / "tune"))


@pytest.fixture
def worker(search: Search, tmp_path: Path) -> Worker:
    storage = Storage(tmp_path, "one")
    return Worker(search, storage, storage.open({}), lambda trials: None)


def add(worker: Worker, state: TrialState, metric: float | None = None) -> None:
    params: dict[str, Any] = {
        "training.learning_rate": 1e-3, "training.batch_size": "8", "training.epochs": len(worker.trials()) % 3 + 1,
    }  # fmt: skip
    worker._study.add_trial(
        create_trial(
            state=state, params=params, distributions=worker.search.spread, user_attrs={rungs.RUNG: 0},
            intermediate_values={} if metric is None else {0: metric},
        )
    )  # fmt: skip


def choose(worker: Worker) -> tuple[int | None, bool]:
    """What the worker takes, and whether it then holds its lock."""
    with ExitStack() as lock:
        number = worker._choose(lock)
        return number, number is not None and not worker._lock(number, lock)


def test_a_trial_that_ends_its_processes_fails_so_that_the_search_goes_on(worker: Worker) -> None:
    add(worker, TrialState.RUNNING)
    assert [choose(worker) for _ in range(10)] == [(0, True)] * 10
    assert choose(worker) == (1, True)
    assert "has ended 10 times without coming further" in worker.trials()[0].user_attrs["failed"]


def test_a_promoted_trial_is_taken_once_its_process_has_unlocked_it(worker: Worker) -> None:
    for metric in (0.5, 0.7, 0.6):
        add(worker, TrialState.WAITING, metric)
    taken = threading.Event()

    def settle() -> None:
        with locked(worker.search.run_of(1).folder):
            taken.set()
            time.sleep(0.3)

    thread = threading.Thread(target=settle)
    thread.start()
    taken.wait()
    assert choose(worker) == (1, True)
    thread.join()


def test_a_trial_that_pauses_while_another_process_looks_is_not_taken_up(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(worker, TrialState.RUNNING, 0.5)
    lock = worker._lock

    def settle(number: int, stack: ExitStack) -> bool:  # between the look and the lock
        if number == 0:
            worker._state(worker.trials()[number], TrialState.WAITING)
        return lock(number, stack)

    monkeypatch.setattr(worker, "_lock", settle)
    with ExitStack() as held:
        assert worker._choose(held) == 1
    first, second = worker.trials()
    assert (first.state, second.state) == (TrialState.WAITING, TrialState.RUNNING)


@pytest.mark.parametrize(
    "address", ["postgresql://user@host:hidden/trials", "mysql://user:hidden@host/trials", "hidden"]
)
def test_an_address_that_is_none_is_refused_without_its_login(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEARCHES_VARIABLE, address)
    with pytest.raises(BadInput, match=r"search_database is not the address of a Postgres") as refused:
        Storage(tmp_path, "one")
    assert "hidden" not in str(refused.value)
