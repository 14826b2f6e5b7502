"""What a stage has read and made, in OpenLineage's terms: raw data, artifacts, and versions of registered models."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client import facet_v2 as facets
from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset

from include.experiment import Experiment
from include.runs import Run
from include.stages import STAGES
from spark_bert.deployment.inputs import named_paths, reads_database, reads_kafka, remote_tables
from spark_bert.deployment.places import data_path, home

#: The namespace of what has no address: the bundled corpus, tasks of the hub, and encoders by name.
NAMESPACE = "spark-bert"
_FILES = "file"


def lineage(stage: str, experiment: Experiment, run: Run, result: Mapping[str, Any]) -> OperatorLineage[Any, Any]:
    """Return the lineage of a stage that has ended. The result is empty if it made nothing."""
    tags = {"run": run.folder.name, "stage": stage, "mlflow_run": result.get("mlflow_run", "")}
    named = [facets.tags_run.TagsRunFacetFields(key, str(value), NAMESPACE) for key, value in tags.items() if value]
    return OperatorLineage(
        inputs=[*_raw_data(stage, experiment), *_artifacts_and_models(stage, run, result)],
        outputs=list(_made(stage, result)),
        run_facets={"tags": facets.tags_run.TagsRunFacet(tags=named)},
    )


def _raw_data(stage: str, experiment: Experiment) -> Iterator[Dataset]:
    reads, paths = STAGES[stage].reads, list(named_paths(stage, experiment))
    data, model = experiment.data, experiment.model.name
    for path in paths:
        yield InputDataset(_FILES, str(data_path(path)))
    if "data" in reads and data.source in ("bundled", "hub"):
        yield InputDataset(NAMESPACE, f"{data.source}/{data.task}")
    if {"model", "model.name"} & set(reads) and model not in paths:
        yield InputDataset(NAMESPACE, f"encoder/{model}")
    if reads_database(stage, experiment):
        yield InputDataset(experiment.scoring.input.removeprefix("jdbc:"), experiment.scoring.table)
    for address in remote_tables(stage, experiment):
        table = data.table if address == data.path else experiment.scoring.table
        yield InputDataset(address, table or "/")
    if reads_kafka(stage, experiment):
        yield InputDataset(f"kafka://{experiment.streaming.brokers}", experiment.streaming.topic)


def _artifacts_and_models(stage: str, run: Run, result: Mapping[str, Any]) -> Iterator[Dataset]:
    stages = run.record()["stages"]
    for name in (*STAGES[stage].inputs, *STAGES[stage].optional):
        if key := stages.get(name, {}).get("key"):
            yield InputDataset(_FILES, str(run.store.path(name, key)), facets=_version(key))
    if stage == "champion" and result.get("version"):
        yield InputDataset(_registry(), result["model"], facets=_version(result["version"]))
    for used in result.get("model_versions", [result.get("model_version", "")]):
        model, _, version = str(used).rpartition("/")
        if model and version.isdecimal():  # and not a folder that the experiment names
            yield InputDataset(_registry(), model, facets=_version(version))


def _made(stage: str, result: Mapping[str, Any]) -> Iterator[Dataset]:
    """Yield the artifact of the stage, with its number of rows, the folder of a stream, and a registered model."""
    if "artifact" in result:
        rows = result.get("rows")
        count = sum(rows.values()) if isinstance(rows, dict) and stage == "validate" else rows
        of_output: dict[str, Any] = {}
        if isinstance(count, int):
            statistics = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(count)
            of_output["outputStatistics"] = statistics
        path = str(result["artifact"])
        yield OutputDataset(_FILES, path, facets=_version(path.rpartition("/")[2]), outputFacets=of_output)
    if "folder" in result and stage == "stream":
        yield OutputDataset(_FILES, str(result["folder"]))
    if stage in ("register", "promote", "rollback") and result.get("version"):
        yield OutputDataset(_registry(), result["model"], facets=_version(result["version"]))


def _version(version: object) -> dict[str, Any]:
    return {"version": facets.dataset_version_dataset.DatasetVersionDatasetFacet(str(version))}


def _registry() -> str:
    """Return the address of MLflow, without a login."""
    address = urlsplit(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home()}/mlflow/mlflow.db")
    return address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
