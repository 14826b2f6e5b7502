from __future__ import annotations

from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from include.fields.search import Range
from tasks.search import rungs
from tasks.search.proposals import as_seen, distributions, params_of, propose, values_of

SPACE: dict[str, Any] = {"a": Range(low=1e-5, high=1e-3, log=True), "b": (8, 16), "c": Range(low=1, high=4)}


def trial(number: int, *values: float, state: TrialState = TrialState.WAITING, going: bool = False) -> FrozenTrial:
    made = create_trial(
        state=state, value=values[-1] if state == TrialState.COMPLETE else None,
        intermediate_values=dict(enumerate(values)), user_attrs={rungs.RUNG: len(values) - 1 + going},
    )  # fmt: skip
    made.number = number
    return made


def test_the_best_third_of_a_rung_goes_on_and_the_highest_rung_first() -> None:
    assert rungs.promotion([trial(0, 0.5), trial(1, 0.6)]) is None
    three = [trial(0, 0.5), trial(1, 0.6), trial(2, 0.6)]
    found = rungs.promotion(three)
    assert found and (found[0].number, found[1]) == (1, 1)  # of equals the first
    running = trial(1, 0.6, state=TrialState.RUNNING, going=True)
    assert rungs.promotion([three[0], running, three[2]]) is None
    upper = [trial(number, 0.9, 0.5 + number / 10) for number in range(3, 6)]
    found = rungs.promotion([*three, *upper])
    assert found and (found[0].number, found[1]) == (5, 2)


def test_the_best_trial_is_one_of_the_highest_rung() -> None:
    assert rungs.best([]) is None
    assert rungs.best([trial(0, state=TrialState.RUNNING, going=True)]) is None
    found = rungs.best([trial(0, 0.9), trial(1, 0.5, 0.6), trial(2, 0.5, 0.7)])
    assert found and found.number == 2


def test_a_proposal_depends_on_seed_and_history_alone_and_is_new() -> None:
    spread = distributions(SPACE, ["c"])
    assert isinstance(spread["a"], FloatDistribution) and isinstance(spread["b"], CategoricalDistribution)
    assert isinstance(spread["c"], IntDistribution)
    history: list[FrozenTrial] = []
    for number in range(14):
        params = propose(history, spread, seed=1)
        assert params == propose(history, spread, seed=1) != propose(history, spread, seed=2)
        assert params and params not in [one.params for one in history]
        values = values_of(params, SPACE)
        assert params_of(values, SPACE) == params
        assert values["b"] in (8, 16) and len(f"{values['a']:g}") <= 9  # three digits
        made = create_trial(
            state=TrialState.WAITING, params=params, distributions=spread, user_attrs={rungs.RUNG: 0},
            intermediate_values={0: -abs(values["c"] - 2)},
        )  # fmt: skip
        made.number = number
        history.append(made)
    assert as_seen(history[0]).state == TrialState.PRUNED


def test_a_space_is_spent_when_all_was_tried() -> None:
    spread = distributions({"b": (8, 16)}, [])
    made = [create_trial(state=TrialState.FAIL, params={"b": text}, distributions=spread) for text in ("8", "16")]
    assert propose(made[:1], spread, 1) == {"b": "16"}
    assert propose(made, spread, 1) is None
