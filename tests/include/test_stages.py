from __future__ import annotations

import pytest

from include.experiment import Experiment
from include.fields.training import Training
from include.named_experiments import load
from include.stages import PIPELINE, STAGES, StageError, parse_result, result_line


def test_the_result_line_round_trips_in_one_line() -> None:
    result = {"stage": "gate", "text": "two\nlines\u2028or more", "value": 0.5}
    assert len(result_line(result).splitlines()) == 1
    assert parse_result(result_line(result)) == result


def test_a_result_with_nan_is_refused() -> None:
    with pytest.raises(ValueError):
        result_line({"accuracy": float("nan")})


@pytest.mark.parametrize("line", ["", "Traceback", "[1]", "3"])
def test_anything_else_on_the_last_line_is_refused(line: str) -> None:
    with pytest.raises(StageError, match="not"):
        parse_result(line)


def test_stages_read_only_earlier_ones() -> None:
    seen: set[str] = set()
    for stage in STAGES.values():
        assert {*stage.inputs, *stage.optional} <= seen
        seen.add(stage.name)


def test_the_pipeline_needs_no_stage_beside_it() -> None:
    assert {need for name in PIPELINE for need in STAGES[name].inputs} <= set(PIPELINE)
    assert {name: STAGES[name].inputs for name in STAGES if name not in PIPELINE} == {
        "study": (), "leaderboard": (), "track": (), "ingest": (), "champion": (), "rollback": (), "score": (),
        "stream": (), "prune": (), "search": ("validate",), "recommend": ("validate", "search"),
        "publish": ("validate", "preprocess", "train", "evaluate", "gate"),
        "challenge": ("validate", "preprocess", "train", "evaluate", "gate", "package", "champion"),
        "register": ("train", "evaluate", "gate", "package", "challenge"),
        "promote": ("challenge", "register"),
    }  # fmt: skip


def test_a_field_with_its_default_does_not_change_a_key() -> None:
    assert STAGES["train"].key_part(Experiment()) == {}
    wanted = load("movies", ["training.seed=7"])
    assert STAGES["train"].key_part(wanted)["training.seed"] == 7


def test_a_scored_table_depends_on_what_separates_its_labels() -> None:
    assert "data.label_separator" in STAGES["score"].key_part(load("movies", ["data.label_separator=;"]))


def test_an_artifact_that_lacks_a_new_field_was_made_with_its_default() -> None:
    train, made = STAGES["train"], STAGES["train"].part(Experiment())
    del made["training"]["seed"]
    assert train.differences(made, Experiment()) == {}
    assert train.differences(made, Experiment(training=Training(seed=7))) == {"training.seed": (1, 7)}


def test_a_training_may_continue_with_another_number_of_ranks() -> None:
    one, two = load("movies", ["training.ranks=1"]), load("movies", ["training.ranks=2"])
    for stage in (STAGES["train"], STAGES["pretrain"]):
        assert stage.resume_part(one) == stage.resume_part(two)
    assert STAGES["train"].key_part(one) != STAGES["train"].key_part(two)


def test_where_and_how_stages_run_changes_no_key() -> None:
    here, there = load("movies"), load("movies", ["runtime.profile=torch", "runtime.checkpoint_steps=7"])
    assert here != there
    assert all(stage.key_part(here) == stage.key_part(there) for stage in STAGES.values())
