"""One process's work on a search, of which any number may be at work on the same one.

What is done next is decided by one process at a time, from what the storage says alone: a trial whose process is gone
goes on from its checkpoint, else the best paused one is promoted, else a new one begins. Each decision is one write, so
that a process that is killed at any moment leaves a search that goes on as if it had not been.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from include.artifacts import locked
from include.experiment import Experiment
from include.runs import Run
from include.search_space import Space, default_of
from include.stages import BadInput, Stopped, Transient
from tasks.search import rungs
from tasks.search.proposals import distributions, params_of, propose, values_of
from tasks.search.storage import SECONDS, Storage
from tasks.search.trial import Reached, advance, newest_step, track, with_values

#: The logger of the lines that `make tune` shows: one for each trial that has reached a rung.
log = logging.getLogger("tasks.search")

#: The attributes of a trial: what it was at rung r (step, metrics and seconds so far), why it has failed, and how often
#: it was tried from where it is.
REACHED, FAILED, TRIES = "reached-{}", "failed", "tries"
_FAILURES = 3  # after as many failed trials and none that has not, something else is wrong
_TRIES = 10  # of a trial whose process was killed each time, without coming further
_KEPT = 3  # paused trials of a rung whose checkpoints are kept; others that are promoted after all begin anew
_WAIT = 1.0  # seconds between two looks for work
_WORST = -1.0  # of all metrics: the value of one that is undefined


@dataclass(frozen=True)
class Search:
    """What a search looks for."""

    name: str
    experiment: Experiment  # with what data leave open about the labels
    space: Space
    data: Run  # the run with the artifact of validate

    @property
    def metric(self) -> str:
        """The metric that is maximized."""
        return self.experiment.task.metric

    @property
    def spread(self) -> dict[str, BaseDistribution]:
        """The space in Optuna's terms."""
        values = self.experiment.part(tuple(self.space))
        return distributions(self.space, [name for name, value in values.items() if type(value) is int])

    def run_of(self, number: int) -> Run:
        """Return the run of a trial."""
        return Run(self.data.folder.with_name(f"{self.name}-trial-{number:04d}"), self.data.store.full_check)


class Worker:
    """A process that works on a search."""

    def __init__(
        self, search: Search, storage: Storage, study: Study, tell: Callable[[list[FrozenTrial]], None]
    ) -> None:
        """`tell` gets all trials whenever something is decided, for those who watch the search."""
        self.search, self._storage, self._study, self._tell = search, storage, study, tell
        self._spread = search.spread

    def work(self) -> None:
        """Work until the budget is spent or all trials are done, here and in other processes. See StageError."""
        with self._storage.errors():
            while True:
                with ExitStack() as lock:
                    with self._storage.deciding():
                        number = self._choose(lock)
                        self._tell(self.trials())
                    if number is not None:
                        self._advance(number)
                    elif any(trial.state == TrialState.RUNNING for trial in self.trials()):
                        time.sleep(_WAIT)
                    else:
                        break
            self._close()

    def trials(self) -> list[FrozenTrial]:
        """Return all trials, by number."""
        return self._study.get_trials(deepcopy=False)

    def _choose(self, lock: ExitStack) -> int | None:
        """Return the number of the trial to work on, which is then locked, or None."""
        trials, asked = self.trials(), self.search.experiment.search
        for trial in trials:
            if trial.state == TrialState.RUNNING and self._lock(trial.number, lock):
                if self.trials()[trial.number].state == TrialState.RUNNING and self._tries_again(trial):
                    return trial.number
                lock.close()  # its process has reached the rung in the meantime, or it has failed
                return self._choose(lock)
        self._check_failures(trials)
        if sum(trial.user_attrs.get(SECONDS, 0.0) for trial in trials) >= 60 * asked.minutes:
            return None
        if found := rungs.promotion(trials):
            trial, rung = found
            while not self._lock(trial.number, lock):  # its process has let it pause, and is about to unlock it
                time.sleep(_WAIT)
            self._set(trial, rungs.RUNG, rung)
            self._state(trial, TrialState.RUNNING)
            return trial.number
        params = None if 0 < asked.trials <= len(trials) else self._params(trials)
        if params is None:
            return None
        self._lock(len(trials), lock)
        self._study.add_trial(
            create_trial(
                state=TrialState.RUNNING, params=params, distributions=self._spread, user_attrs={rungs.RUNG: 0}
            )
        )
        return len(trials)

    def _tries_again(self, trial: FrozenTrial) -> bool:
        """Return whether to go on with a trial whose process is gone. One that ends all its processes has failed."""
        place = [trial.user_attrs[rungs.RUNG], newest_step(self.search.run_of(trial.number))]
        before, tries = trial.user_attrs.get(TRIES, (None, 0))
        tries = tries + 1 if before == place else 1
        self._set(trial, TRIES, (place, tries))
        if tries > _TRIES:
            self._fail(trial, f"its process has ended {_TRIES} times without coming further: is there enough memory?")
        return tries <= _TRIES

    def _fail(self, trial: FrozenTrial, reason: str) -> None:
        self._set(trial, FAILED, reason)
        self._state(trial, TrialState.FAIL)
        log.info("%s failed: %s", self._named(trial), reason)

    def _params(self, trials: list[FrozenTrial]) -> dict[str, Any] | None:
        """Return the params of a new trial; the first one has those of the experiment, if they are in the space."""
        search = self.search
        default = default_of(search.experiment, search.space)
        if not trials and default is not None:
            return params_of(default, search.space)
        return propose(trials, self._spread, search.experiment.search.seed)

    def _lock(self, number: int, lock: ExitStack) -> bool:
        try:
            lock.enter_context(locked(self.search.run_of(number).folder))
        except Transient:  # another process works on it
            return False
        return True

    def _check_failures(self, trials: list[FrozenTrial]) -> None:
        failed = [trial for trial in trials if trial.state == TrialState.FAIL]
        if len(failed) == len(trials) >= _FAILURES:
            raise BadInput(
                f"all {len(trials)} trials have failed, the last one because {failed[-1].user_attrs[FAILED]}"
            )

    def _advance(self, number: int) -> None:
        """Work on a trial until it reaches its rung."""
        trial, search = self.trials()[number], self.search
        rung = trial.user_attrs[rungs.RUNG]
        if rung not in trial.intermediate_values:
            try:
                with self._storage.counted(self._study, trial):
                    experiment = with_values(search.experiment, values_of(trial.params, search.space))
                    share = rungs.SHARES[rung]
                    reached = advance(search.run_of(number), search.data, search.name, experiment, share)
            except BadInput as error:
                self._fail(trial, str(error))
                return
            except (SystemExit, KeyboardInterrupt, Stopped):  # nothing is wrong with a trial that a person stops
                self._set(trial, TRIES, (None, 0))
                raise
            self._report(trial, rung, reached)
        self._settle(self.trials()[number], rung)

    def _report(self, trial: FrozenTrial, rung: int, reached: Reached) -> None:
        """Write down what a trial has reached; if its training was done before, it is at the top."""
        metric = reached.metrics.get(self.search.metric)
        seconds = self.trials()[trial.number].user_attrs[SECONDS]
        tops = range(rung, rungs.LAST + 1) if reached.done else [rung]
        for at in reversed(tops):  # its own rung last: with that value, all is written
            said = {"step": reached.step, "metrics": reached.metrics, "seconds": seconds, "passed": reached.passed}
            self._set(trial, REACHED.format(at), {**said, "checkpoints": reached.checkpoints})
            value = _WORST if metric is None else metric
            self._study._storage.set_trial_intermediate_value(trial._trial_id, at, value)

    def _settle(self, trial: FrozenTrial, rung: int) -> None:
        """Let a trial pause at the rung that it has reached, or end at the last one."""
        last = max(trial.intermediate_values)
        log.info("%s: %s", self._named(trial), self._standing(trial, last))
        if last == rungs.LAST:
            self._set(trial, rungs.RUNG, last)
            self._state(trial, TrialState.COMPLETE, [trial.intermediate_values[last]])
            return
        self._state(trial, TrialState.WAITING)
        for other in rungs.paused(self.trials(), rung)[_KEPT:]:
            self._discard(other, rung)

    def _close(self) -> None:
        """Discard the checkpoints of trials that are not promoted any more, and write their runs to MLflow."""
        for rung in range(rungs.LAST):
            for trial in rungs.paused(self.trials(), rung):
                self._discard(trial, rung)
                run = self.search.run_of(trial.number)
                if run.file.is_file() and "track" not in run.record()["stages"]:
                    track(run, self.search.experiment)

    def _discard(self, trial: FrozenTrial, rung: int) -> None:
        key = trial.user_attrs[REACHED.format(rung)]["checkpoints"]
        if key:
            self.search.data.store.discard_checkpoints("train", key)

    def _set(self, trial: FrozenTrial, name: str, value: Any) -> None:
        self._study._storage.set_trial_user_attr(trial._trial_id, name, value)

    def _state(self, trial: FrozenTrial, state: TrialState, values: list[float] | None = None) -> None:
        self._study._storage.set_trial_state_values(trial._trial_id, state, values)

    def _named(self, trial: FrozenTrial) -> str:
        values = shortened(values_of(trial.params, self.search.space))
        return f"trial {trial.number} ({', '.join(f'{name} {_written(value)}' for name, value in values.items())})"

    def _standing(self, trial: FrozenTrial, rung: int) -> str:
        step, metric = trial.user_attrs[REACHED.format(rung)]["step"], self.search.metric
        best = rungs.best(self.trials())
        assert best is not None
        height = max(best.intermediate_values)
        return (
            f"rung {rung + 1} of {rungs.LAST + 1}, step {step}, {metric} {trial.intermediate_values[rung]:.4f}; best: "
            f"trial {best.number}, {best.intermediate_values[height]:.4f} at rung {height + 1}"
        )


def shortened(values: dict[str, Any]) -> dict[str, Any]:
    """Return values by the names of their fields, without the section if that is training."""
    return {name.removeprefix("training."): value for name, value in values.items()}


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
