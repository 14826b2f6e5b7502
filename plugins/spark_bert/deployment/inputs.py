"""What an experiment names, such as files and databases: what of it a stage reads, and what $SPARK_BERT_DATA allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from include.experiment import Experiment
from include.fields.training import CHAMPION, Model
from include.glue import SPLITS
from include.stages import STAGES, BadInput
from include.tables import files_of, local_path, split_paths
from spark_bert.deployment.places import data_path, home

# Variables with the values that runs may name where $SPARK_BERT_DATA is set, separated by white space. A run could
# otherwise send a login to a server of its own, or run a driver, which is code, with the stage's rights.
DATABASES = "SPARK_BERT_DATABASES"  # JDBC addresses, and those of Delta tables and catalogs of Iceberg
DRIVERS = "SPARK_BERT_DRIVERS"
BROKERS = "SPARK_BERT_BROKERS"
MASTERS = "SPARK_BERT_SPARK_MASTER"  # a run uses the first unless it names one, and may also name local ones
#: The variable with the URL of the folder through which stages and executors exchange files.
STAGING = "SPARK_BERT_STAGING"


def named_paths(stage: str, experiment: Experiment) -> Iterator[str]:
    """Yield the paths, as they are written, in the part of the experiment that the stage reads, and in its trials'."""
    tried = _trials(experiment) if "search" in STAGES[stage].reads else ()
    yield from dict.fromkeys(path for each in (experiment, *tried) for path in _named_paths(stage, each))


def _trials(experiment: Experiment) -> Iterator[Experiment]:
    """Yield the experiment with each of the listed values of a search's space."""
    for name, entry in experiment.search.space.items():
        section, _, field = name.partition(".")
        for value in entry if isinstance(entry, tuple) else ():
            changed = getattr(experiment, section).model_copy(update={field: value})
            yield experiment.model_copy(update={section: changed})


def _named_paths(stage: str, experiment: Experiment) -> Iterator[str]:
    reads = STAGES[stage].reads
    if "data" in reads and (path := local_path(experiment.data.path)):
        yield path
    if "dataset" in reads and experiment.dataset.drop:
        yield experiment.dataset.drop
    if "pretraining" in reads and experiment.pretraining.text:
        yield experiment.pretraining.text
    if "distillation.text" in reads and experiment.distillation.text:
        yield experiment.distillation.text
    if "scoring" in reads:
        scoring = experiment.scoring
        table = "" if scoring.is_database else local_path(scoring.input)
        yield from filter(None, (table, scoring.driver, scoring.model))
    if "streaming" in reads:
        streaming = experiment.streaming
        yield from filter(None, (streaming.folder if streaming.source == "files" else "", streaming.model))
    if {"model", "model.teacher"} & set(reads) and _is_folder(experiment.model):
        yield experiment.model.teacher
    if {"model", "model.name"} & set(reads):
        own = (experiment.model.name, experiment.model.lexicon)
        yield from (name for name in own if name.startswith(("/", "./", "../", "~")))


def _is_folder(model: Model) -> bool:
    return model.teacher not in ("", CHAMPION, model.teacher_run)


def named_runs(stage: str, experiment: Experiment) -> dict[str, tuple[str, ...]]:
    """Return the names of the other runs that the stage reads, by the field that names them."""
    if STAGES[stage].records != "named":
        return {}
    teacher, reads = experiment.model.teacher_run, STAGES[stage].reads
    named = {"submission.runs": experiment.submission.runs, "model.teacher": (teacher,) if teacher else ()}
    return {field: runs for field, runs in named.items() if {field, field.partition(".")[0]} & set(reads)}


def check_inputs(stage: str, experiment: Experiment) -> None:
    """Raise BadInput if the stage would read a path, database, driver, broker, or Spark master that is not allowed."""
    root = os.environ.get("SPARK_BERT_DATA")
    if not root:
        return
    _check_databases(stage, experiment)
    if reads_kafka(stage, experiment):
        brokers = experiment.streaming.brokers
        _check_listed(brokers, f"streaming.brokers = {brokers!r}", "brokers", BROKERS)
    if uses_cluster(stage, experiment):
        master = experiment.runtime.spark_master
        _check_listed(master, f"runtime.spark_master = {master!r}", "Spark masters", MASTERS)
    for text in (*named_paths(stage, experiment), *_files(stage, experiment)):
        if text == experiment.scoring.driver:  # the deployment names it; below the data, others could replace it
            continue
        if not _is_below(text, Path(root)) and not is_in_artifact_store(text):
            raise BadInput(f"{text} is not below {root}: move it there, or set SPARK_BERT_DATA to another folder")
    for field, runs in named_runs(stage, experiment).items():
        for run in runs:
            if Path(run).name != run or not _is_below(str(home() / "runs" / run), home() / "runs"):
                raise BadInput(f"{field} names {run}: write the name of a folder in {home() / 'runs'}")


def _check_databases(stage: str, experiment: Experiment) -> None:
    export = ", or export the table to a file, which is the only way on the compose platform"
    for address in remote_tables(stage, experiment):
        _check_listed(address, address, "databases", DATABASES, export)
    if reads_database(stage, experiment):
        _check_listed(experiment.scoring.input, experiment.scoring.input, "databases", DATABASES, export)
        driver = experiment.scoring.driver
        _check_listed(driver, f"scoring.driver = {driver!r}", "drivers", DRIVERS)


def reads_database(stage: str, experiment: Experiment) -> bool:
    """Return whether the stage reads a database."""
    return "scoring" in STAGES[stage].reads and experiment.scoring.is_database


def remote_tables(stage: str, experiment: Experiment) -> list[str]:
    """Return the addresses of the tables and catalogs that the stage reads and that are no files of this machine."""
    reads, scoring = STAGES[stage].reads, experiment.scoring
    named = [experiment.data.path] if "data" in reads else []
    named += [scoring.input] if "scoring" in reads and not scoring.is_database else []
    return [address for address in named if "://" in address and not local_path(address)]


def reads_kafka(stage: str, experiment: Experiment) -> bool:
    """Return whether the stage reads a topic of Kafka."""
    return "streaming" in STAGES[stage].reads and experiment.streaming.source != "files"


def uses_cluster(stage: str, experiment: Experiment) -> bool:
    """Return whether the stage works on a Spark cluster, and not only in its own process."""
    ranks = STAGES[stage].image != "data" and experiment.runtime.ranks_on == "spark"
    mllib = stage == "train" and experiment.model.kind != "encoder"
    return (STAGES[stage].spark or ranks or mllib) and not experiment.runtime.spark_master.startswith("local")


def uses_mlflow(stage: str, experiment: Experiment) -> bool:
    """Return whether the stage uses MLflow, a server or else the database below the home."""
    return STAGES[stage].mlflow and not STAGES[stage].is_idle(experiment)


def staging(stage: str, experiment: Experiment) -> str:
    """Return the URL of the folder through which the stage and executors exchange files; "" if it uses none."""
    return os.environ.get(STAGING, "") if uses_cluster(stage, experiment) else ""


def stores(stage: str, experiment: Experiment) -> list[str]:
    """Return the addresses, some of them in object stores, at which the stage reads tables and exchanges files."""
    return [*remote_tables(stage, experiment), *filter(None, [staging(stage, experiment)])]


def masters() -> list[str]:
    """Return the Spark masters of the deployment, the one that runs use by default first."""
    return os.environ.get(MASTERS, "").split()


def is_in_artifact_store(text: str) -> bool:
    """Return whether the path is absolute and lies in the artifact store, which every stage may read."""
    return Path(text).is_absolute() and _is_below(text, home() / "artifacts")


def _check_listed(value: str, words: str, kind: str, variable: str, or_else: str = "") -> None:
    if value not in os.environ.get(variable, "").split():
        raise BadInput(
            f"{words} is none of this deployment's {kind}: add it to {variable} in Airflow's environment{or_else}"
        )


def _files(stage: str, experiment: Experiment) -> Iterator[str]:
    """Yield the files of tables, whose names could lead out of their folders, as could those of files within them."""
    reads, data, scoring = STAGES[stage].reads, experiment.data, experiment.scoring
    named = set[Path]()
    if "data" in reads and data.source == "files":
        for split in SPLITS:
            yield from (str(Path(data.path, name)) for name in data.file_names(split))
        named |= set(split_paths(data, data_path(data.path)).values())
    if "scoring" in reads and not scoring.is_database and (table := local_path(scoring.input)) == scoring.input != "":
        named.add(data_path(table))
    yield from (str(file) for path in named for file in files_of(path))


def _is_below(text: str, folder: Path) -> bool:
    try:
        return data_path(text).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # the name is too long, or links form a circle
        raise BadInput(f"{text!r} is not a valid path: {error}") from None
