"""The Dag tune: what its form asks to try, its workers, and the run that they share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.definitions.taskgroup import MappedTaskGroup
from airflow.sdk.exceptions import ParamValidationError

from include.named_experiments import load
from include.search_space import USUAL, space_of
from include.stages import BadInput
from spark_bert.dag.pools import pool
from spark_bert.deployment.places import run_folder, this_run
from spark_bert.operators.base import StageOperator
from spark_bert.studies.search import list_workers, search_experiment, search_form
from spark_bert.web.links import LINKS


def context(index: int = -1, **sent: Any) -> Any:
    """Of an index of the mapped task, whose form was sent with these fields."""
    params = ParamsDict(search_form())
    params.update(sent)
    run = SimpleNamespace(dag_id="tune", run_id="manual__1")
    task = SimpleNamespace(run_id=run.run_id, task_id="search", map_index=index)
    return {"params": params.validate(), "dag_run": run, "ti": task}


def space(**lines: str) -> dict[str, Any]:
    """What is tried where these lines of the form, without their section, are filled in."""
    return space_of(search_experiment(context(-1, **{f"tried.training.{name}": text for name, text in lines.items()})))


def test_workers_search_between_validate_and_recommend(dag: DAG) -> None:
    group = dag.task_group.get_child_by_label("trials")
    assert isinstance(group, MappedTaskGroup)
    assert {task.task_id for task in group.iter_tasks()} == {"search"}
    assert dag.get_task("search").upstream_task_ids == {"validate", "workers"}
    last = dag.get_task("recommend")
    assert isinstance(last, StageOperator) and last.upstream_task_ids == {"search"} and not last.downstream_task_ids
    training = pool("train")
    assert [dag.get_task(name).pool == training for name in ("validate", "search", "recommend")] == [False, True, True]
    assert list_workers.function(**context(workers=3)) == [0, 1, 2]


def test_all_workers_of_a_search_share_its_run() -> None:
    runs = {this_run(context(index)).folder for index in (-1, 0, 1)}
    assert runs == {run_folder("tune", "manual__1")}
    operator: Any = SimpleNamespace(result={"stage": "search", "files": {"search": "search.json"}})
    key: Any = SimpleNamespace(dag_id="tune", run_id="manual__1", task_id="search", map_index=1)
    address = LINKS["search"][0].get_link(operator, ti_key=key)
    assert address.endswith("/runs/tune/manual__1/search/search.json")


def test_an_untouched_form_searches_the_usual_space_of_the_named_experiment() -> None:
    assert search_experiment(context()) == load("movies")
    asked = search_experiment(context(experiment="sst2", **{"search.minutes": 5, "training.batch_size": 16}))
    assert asked == load("sst2", ["search.minutes=5", "training.batch_size=16"])
    assert set(space_of(asked)) == set(USUAL)


def test_the_form_asks_for_the_search_first_and_has_no_field_that_trials_do_not_read() -> None:
    form = search_form()
    sections = [param.schema["section"] for param in form.values()]
    assert list(form)[:3] == ["experiment", "search.minutes", "workers"] and set(
        sections[1 : sections.index("Data")]
    ) == {"Search"}
    assert {"workers", *(f"tried.{name}" for name in USUAL)} < set(form)
    assert not {key.partition(".")[0] for key in form} & {"submission", "scoring", "streaming", "retraining", "study"}


def test_a_line_says_what_is_tried() -> None:
    found = space(learning_rate="1e-5 to 5e-5", epochs="1, 2", layer_decay="0.8 to 1")
    wanted = [
        'search.space={training.learning_rate: {low: 1e-5, high: 5e-5, log: true}, training.epochs: [1, 2], '
        "training.batch_size: [16, 32, 64], training.warmup: {low: 0, high: 0.2, step: 0.02}, "
        "training.layer_decay: {low: 0.8, high: 1, step: 0.05}}"
    ]  # fmt: skip
    assert found == space_of(load("movies", wanted))


def test_an_empty_line_is_not_tried_and_search_space_adds_others() -> None:
    assert set(space(epochs="", warmup=" ")) == {
        f"training.{name}" for name in ("learning_rate", "batch_size", "layer_decay")
    }
    more = {"search.space": {"loss.kind": ["cross-entropy", "focal"]}, "tried.training.epochs": None}
    assert set(search_experiment(context(-1, **more)).search.space) == {*USUAL, "loss.kind"} - {"training.epochs"}
    with pytest.raises(BadInput, match="nothing is to be tried"):
        space(**dict.fromkeys((name.removeprefix("training.") for name in USUAL), ""))


@pytest.mark.parametrize("text", ["1 to", "to 2", "1 to 2 to 3", "1,,2", ","])
def test_what_is_no_range_and_no_list_is_refused_by_the_form(text: str) -> None:
    with pytest.raises(ParamValidationError):
        space(learning_rate=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("2 to 1", "less than"), ("one to two", "valid number"), ("a, b", "learning_rate"), ("-1 to 1", "logarithm")],
)
def test_what_the_field_cannot_be_is_refused_with_its_name(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=r"training\.learning_rate") as refusal:
        space(learning_rate=text)
    assert message in str(refusal.value)


def test_an_experiment_with_a_space_of_its_own_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"search": {"space": {"training.weight_decay": [0.0, 0.1]}}}
    monkeypatch.setattr("spark_bert.dag.params.read", lambda name: own)
    assert set(search_experiment(context()).search.space) == {"training.weight_decay"}
    assert set(space(epochs="1, 2")) == {"training.weight_decay", "training.epochs"}
