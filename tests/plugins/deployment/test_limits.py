"""A deployment's limits: what it changes, and what it is told when it writes them wrong."""

from __future__ import annotations

import pytest

from include.stages import STAGES, BadInput
from spark_bert.deployment.limits import VARIABLE, limits


def test_every_stage_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for stage in STAGES:
        limit = limits(stage)
        assert limit.memory >= limit.tmp and limit.shm >= 64 << 20 and limit.cpus >= 1 and limit.pids >= 512


def test_a_deployment_changes_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    before = limits("train")
    monkeypatch.setenv(VARIABLE, '{"train": {"memory": "24g", "cpus": 2.5, "shm": "512m"}}')
    after = limits("train")
    assert (after.memory, after.cpus, after.shm) == (24 << 30, 2.5, 512 << 20)
    assert (after.pids, after.tmp) == (before.pids, before.tmp)
    assert limits("evaluate").memory == 6 << 30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "train=12g",
            r"SPARK_BERT_LIMITS is not JSON .*: write it as SPARK_BERT_LIMITS='{\"train\": {\"memory\": \"12g\"}}'",
        ),
        ('{"train": "12g"}', "is not an object that maps stages to objects of limits"),
        ('["train"]', "is not an object that maps stages to objects of limits"),
        ('{"trian": {}}', "names the unknown stage trian: write one of validate, preprocess"),
        ('{"train": {"memory": "12"}}', r"train.memory = '12': write a whole number followed by k, m, g or t"),
        ('{"train": {"memory": 12}}', "train.memory = 12: write a whole number"),
        ('{"train": {"memory": "0g"}}', "write a whole number"),
        ('{"train": {"cpus": 0}}', "train.cpus = 0: Input should be greater than 0"),
        ('{"train": {"gpus": 1}}', "train.gpus = 1: .*; the limits are memory, cpus, pids, tmp, shm"),
    ],
)
def test_mistakes_are_explained(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(BadInput, match=message):
        limits("train")
