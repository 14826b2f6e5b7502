"""The Dag score: one task, whose form describes a table and a model."""

from __future__ import annotations

import importlib

from airflow.sdk import DAG

from spark_bert.dag.params import resolve
from spark_bert.operators.base import StageOperator


def test_its_form_describes_the_table_and_the_model() -> None:
    dag = importlib.import_module("dags.score").dag
    assert (
        isinstance(dag, DAG) and list(dag.task_dict) == ["score"] and isinstance(dag.get_task("score"), StageOperator)
    )
    assert {"scoring.input", "scoring.text", "scoring.model", "dataset.name", "prediction.batching"} <= set(dag.params)
    assert "data.label_separator" in dag.params  # scored.csv is written with it
    assert "data.task" not in dag.params  # most tasks need fields that say nothing about the table
    assert "training.epochs" not in dag.params and "retraining.margin" not in dag.params
    form = {key: dag.params[key] for key in dag.params}
    scoring = resolve({**form, "scoring.input": "in.csv", "scoring.text": "review", "dataset.name": "reviews"}).scoring
    assert (scoring.input, scoring.texts, scoring.model) == ("in.csv", ("review",), "")
