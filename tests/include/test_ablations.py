"""The list of configurations is valid, and it has always been append-only."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest

from include.ablations import CONFIGURATIONS, EPOCH, EXPERIMENTS, TABLE_5, arm, day, find, parse, study
from include.experiment import Experiment
from include.named_experiments import build, load, merge
from include.stages import BadInput

#: Configurations that work only for one kind of task, with the message for the other kind.
REFUSED = {
    ("STS-B", "focal"): "loss.kind focal does not fit the regression task STS-B: write one of auto, mse, huber",
    ("STS-B", "class-weights"): "loss.class_weights balanced needs classes",
    ("SST-2", "huber"): "loss.kind huber does not fit the classification task SST-2: write one of auto, cross-entropy",
}

#: Id and digest of the changes of each configuration, in their order.
PROMISED = [
    ("base", "f5b9b211"),
    ("dynamic-batching", "1e7e268a"),
    ("mixed-precision", "80ccf67c"),
    ("gradient-compression", "6f228311"),
    ("full", "b03c79fd"),
    ("default", "44136fa3"),
    ("compression-fp16", "afaf9054"),
    ("compression-int8", "158f67c2"),
    ("compression-int4", "016cef63"),
    ("compression-onebit", "d7b84e80"),
    ("compression-topk", "6e52b146"),
    ("compression-powersgd", "202d1748"),
    ("parameter-server", "1d570670"),
    ("parameter-server-stale", "70a3e470"),
    ("hierarchical", "b7899fb5"),
    ("focal", "0f65408a"),
    ("class-weights", "889d2033"),
    ("huber", "0e871a89"),
    ("layer-decay", "a5a5cdc1"),
    ("average", "9143eec0"),
    ("frozen", "89227100"),
    ("domain-pretraining", "97557eb6"),
    ("augment-synonyms", "54ee58e1"),
    ("augment-masking", "0cad6b16"),
    ("augment-order", "285e38dc"),
    ("lora", "c14793da"),
    ("stop-words", "1ec05974"),
    ("lexicon", "4024d103"),
]


def experiment(task: str, identity: str, **overrides: Any) -> Experiment:
    values = load(EXPERIMENTS[task]).model_dump(mode="json")
    return build(merge(values, arm(find(identity), 7, overrides)), identity)


@pytest.mark.parametrize("task", ["SST-2", "STS-B"])
@pytest.mark.parametrize("identity", CONFIGURATIONS)
def test_every_configuration_fits_its_tasks_and_is_refused_for_others(task: str, identity: str) -> None:
    if message := REFUSED.get((task, identity)):
        with pytest.raises(BadInput, match=message):
            experiment(task, identity)
    else:
        made = experiment(task, identity)
        assert made.data.task == task and made.training.seed == 7 and made.training.ranks == 2


@pytest.mark.parametrize("task", EXPERIMENTS)
def test_every_task_has_the_experiment_that_its_default_arm_is(task: str) -> None:
    plain = load(EXPERIMENTS[task], ["training.seed=7", "training.ranks=2"])
    assert plain.data.task == task and experiment(task, "default") == plain


def test_a_study_may_have_another_number_of_ranks() -> None:
    assert experiment("SST-2", "compression-int8", **{"training.ranks": 4}).training.ranks == 4


def test_no_two_configurations_are_the_same() -> None:
    arms = [repr(sorted(row.changes.items())) for row in CONFIGURATIONS.values()]
    assert len(set(arms)) == len(arms)


def test_table_5_comes_first_and_each_row_adds_to_the_one_above() -> None:
    assert tuple(CONFIGURATIONS)[: len(TABLE_5)] == TABLE_5
    rows = [find(identity).changes for identity in TABLE_5]
    assert [row["batching.kind"] for row in rows] == ["static", *["length"] * 4]
    assert [row["training.precision"] for row in rows] == ["fp32"] * 2 + ["bf16"] * 3
    assert [row["communication.compression"] for row in rows] == ["none"] * 3 + ["powersgd"] * 2
    added = ("training.sparse_embeddings", "training.fused_layers", "training.activation_checkpointing")
    assert [{row[key] for key in added} for row in rows] == [{False}] * 4 + [{True}]


def test_every_configuration_has_a_day() -> None:
    for number, identity in enumerate(CONFIGURATIONS):
        assert day(identity) == EPOCH + timedelta(number)


def test_an_unknown_configuration_is_refused() -> None:
    with pytest.raises(BadInput, match=r"unknown configuration 'ful', did you mean full\?: write one of base, dynamic"):
        find("ful")


@pytest.mark.parametrize(
    ("key", "who"),
    [
        ("batching.kind", "the configuration base"),
        ("training.seed", "the param seed"),
        ("data.task", "the param task"),
    ],
)
def test_a_study_cannot_set_what_its_arms_differ_in(key: str, who: str) -> None:
    with pytest.raises(BadInput, match=f"{key} = 'x' cannot hold for the whole study, because {who} sets it"):
        arm(find("base"), 1, {key: "x"})


def test_a_studys_name_is_its_task_and_what_was_overridden() -> None:
    assert study("SST-2", {}) == "SST-2"
    named = study("SST-2", {"training.epochs": 1, "data.path": "x"})
    assert named == study("SST-2", {"data.path": "x", "training.epochs": 1})
    assert named.startswith("SST-2-") and len(named) == len("SST-2-") + 6
    assert named != study("SST-2", {"data.path": "x", "training.epochs": 2})


@pytest.mark.parametrize("row", ["id: Base", "id: a\n  more: 1", "id: base\n  changes: {}\n  about: x\n- id: base"])
def test_a_malformed_list_is_refused(row: str) -> None:
    whole = f"- {row}\n" + ("  about: x\n  changes: {}\n" if "more" not in row else "")
    with pytest.raises(BadInput, match=r"ablations\.yaml"):
        parse(whole)


def test_the_list_was_only_appended_to() -> None:
    """Results are kept under the ids and days. To append a configuration, append its line here."""
    now = [
        (row.id, hashlib.sha256(json.dumps(row.changes, sort_keys=True).encode()).hexdigest()[:8])
        for row in CONFIGURATIONS.values()
    ]
    assert now == PROMISED
