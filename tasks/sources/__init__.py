"""One interface to raw text of any origin: `open_source(experiment).records(split)`."""

from __future__ import annotations

from include.experiment import Experiment
from tasks.assets import corpus_file
from tasks.sources.files import OwnFiles, TableRows
from tasks.sources.published import BundledCorpus, GlueFolder, HubDataset
from tasks.sources.source import Record, Source

__all__ = ["Record", "Source", "open_source"]


def open_source(experiment: Experiment) -> Source:
    """Open the source that the experiment's data section names. Raise BadInput if it does not exist."""
    data, task = experiment.data, experiment.task
    match data.source:
        case "bundled":
            return BundledCorpus(corpus_file(experiment.runtime))
        case "glue":
            return GlueFolder(data.path, task)
        case "hub":
            return HubDataset(task)
        case "files":
            return OwnFiles(data, task)
        case "delta" | "iceberg":
            return TableRows(data, task)
