"""What a stage's container is given, whatever starts it: image, environment, network, folders.

Every folder has the same path inside as outside, so that artifacts, records and keys are the same in all runtimes.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from include.experiment import Experiment
from include.secrets import HUB, LOGIN, VARIABLE, of_mlflow
from include.stages import STAGES, BadInput
from spark_bert.folders import hand_over
from spark_bert.inputs import is_stored, named
from spark_bert.places import cache, data, home

#: Where the images have include/ and tasks/, and where their relative paths start.
CODE = PurePosixPath("/opt/spark-bert")
SECRETS = PurePosixPath("/run/secrets")
#: What makes a stage look into the cache, which holds models and corpora.
_CACHED = {"data", "model", "model.name", "pretraining"}
#: The users whom /etc/passwd in the images names.
NAMED_USERS = range(1000, 65534)


def image(stage: str) -> str:
    """The image that holds what the stage needs, its variant for GPUs where there are some."""
    name = STAGES[stage].image + ("-gpu" if wants_gpus(stage) else "")
    return (
        f"{os.environ.get('SPARK_BERT_IMAGES') or 'spark-bert'}/{name}:{os.environ.get('SPARK_BERT_TAG') or 'latest'}"
    )


def gpus() -> int:
    """How many GPUs a training gets: $SPARK_BERT_GPUS, a number or all (-1); 0 without it."""
    text = os.environ.get("SPARK_BERT_GPUS") or "0"
    if text != "all" and not text.isdecimal():
        raise BadInput(f"SPARK_BERT_GPUS={text!r}: write how many GPUs a training gets, or all")
    return -1 if text == "all" else int(text)


def wants_gpus(stage: str) -> bool:
    """Whether the stage trains, on a deployment with GPUs."""
    return STAGES[stage].image == "train" and gpus() != 0


def user() -> tuple[int, int]:
    """The user and group that stages run as: the caller's, but never root. Raises BadInput for one without a name."""
    if os.getuid() == 0:
        return 1000, 1000
    if os.getuid() not in NAMED_USERS:
        raise BadInput(
            f"stages would run as user {os.getuid()}, but the images have names for {NAMED_USERS.start} to "
            f"{NAMED_USERS[-1]} only, and Java needs one: start Airflow as such a user, or as root"
        )
    return os.getuid(), os.getgid()


def is_online(stage: str, experiment: Experiment) -> bool:
    """Whether the stage may fetch missing models and data."""
    return experiment.runtime.download and _reads_cache(stage)


def network(stage: str, experiment: Experiment) -> str:
    """The network that the stage needs: none, or $SPARK_BERT_NETWORK for a Spark cluster, MLflow, or to download."""
    ranks = STAGES[stage].image == "train" and experiment.runtime.ranks_on == "spark"
    cluster = (STAGES[stage].spark or ranks) and not experiment.runtime.spark_master.startswith("local")
    if not cluster and not is_online(stage, experiment) and not (STAGES[stage].mlflow and _mlflow()):
        return "none"
    return os.environ.get("SPARK_BERT_NETWORK") or "bridge"


def secrets(stage: str, experiment: Experiment) -> tuple[str, ...]:
    """The names of the secret files that the stage may read, if they are there; none without $SPARK_BERT_SECRETS."""
    if not os.environ.get(VARIABLE):
        return ()
    login = of_mlflow(stage) if _mlflow() else ()
    return ((HUB,) if is_online(stage, experiment) else ()) + login


def environment(stage: str, experiment: Experiment) -> dict[str, str]:
    """The stage's environment. A secret is a file that it is told the path of, never a value.

    Raises BadInput for a login to MLflow that everybody could read who may look at containers.
    """
    variables = {"SPARK_BERT_HOME": str(home()), "SPARK_BERT_CACHE": str(cache()), "HF_HOME": f"{cache()}/huggingface"}
    names = secrets(stage, experiment)
    if names:
        variables[VARIABLE] = str(SECRETS)
    if HUB in names:
        variables["HF_TOKEN_PATH"] = str(SECRETS / HUB)
    if STAGES[stage].mlflow and _mlflow():
        _check_login()
        variables["MLFLOW_TRACKING_URI"] = _mlflow()
    return variables


def writable(stage: str, experiment: Experiment, run: Path) -> list[Path]:
    """The folders that the stage writes into: the store, its run's folder, and what it is there to change."""
    folders = [home() / "artifacts", home() / "checkpoints", home() / "runs" if stage == "prune" else run]
    if "dataset" in STAGES[stage].reads:
        folders.append(home() / "datasets")
    if STAGES[stage].mlflow and not _mlflow():  # its database, where there is no server
        folders.append(home() / "mlflow")
    return [*folders, cache()] if is_online(stage, experiment) else folders


def prepare(stage: str, experiment: Experiment, run: Path) -> None:
    """Make the folders that the stage writes into, and give those of root to the user that it runs as.

    Root has made them, or has run stages as processes. What lies in them stays whose it is: a walk would meet what
    other stages write and remove meanwhile. Raises BadInput for a symbolic link in a folder's place.
    """
    folders = writable(stage, experiment, run)
    if os.getuid() == 0:  # else they are the user's already, or may not be made from here
        folders += [home() / "artifacts" / stage, home() / "checkpoints" / stage]
    if os.getuid() == 0 and "dataset" in STAGES[stage].reads:
        folders.append(home() / "datasets" / (experiment.dataset.name or experiment.data.task))
    for folder in folders:
        root = home() if folder.is_relative_to(home()) else folder
        hand_over(root, folder, user())


def readable(stage: str, experiment: Experiment, run: Path) -> dict[Path, PurePosixPath]:
    """What the stage only reads, and where it looks for it. Raises BadInput for a path below a home folder.

    What does not exist is left to the stage, which says what it misses.
    """
    paths = {data(text): CODE / text for text in map(_plain, named(stage, experiment)) if not is_stored(text)}
    if _reads_cache(stage) and not is_online(stage, experiment):
        paths[cache()] = PurePosixPath(cache())
    if "submission" in STAGES[stage].reads:
        runs = [home() / "runs" / name for name in experiment.submission.runs]
        paths |= {run: PurePosixPath(run) for run in runs if run.resolve().parent == (home() / "runs").resolve()}
    if "study" in STAGES[stage].reads or stage == "track":  # arms, and earlier runs to catch up on
        paths[home() / "runs"] = PurePosixPath(home() / "runs")
    if stage == "prune":  # what datasets refer to
        paths[home() / "datasets"] = PurePosixPath(home() / "datasets")
    write = writable(stage, experiment, run)
    return {path: target for path, target in paths.items() if path.exists() and path not in write}


def drop_folder(stage: str, experiment: Experiment) -> Path | None:
    """Of the folders that the stage reads, the one that it may change: ingest sets malformed files aside in it."""
    drop = experiment.dataset.drop if "dataset" in STAGES[stage].reads else ""
    return data(drop) if drop and not is_stored(drop) else None


def _mlflow() -> str:
    """The MLflow server's address; "" without one."""
    return os.environ.get("MLFLOW_TRACKING_URI", "")


def _check_login() -> None:
    """The address must hold no login, and a login that only Airflow's environment holds would not arrive."""
    token, username, password = LOGIN.values()
    remedy = f"write the login into the file {token}, or {username} and {password}, of {VARIABLE}"
    if urlsplit(_mlflow()).netloc.count("@"):
        raise BadInput(
            "MLFLOW_TRACKING_URI holds a login, which whoever may inspect a container would see: take it out of the "
            f"address, and {remedy}"
        )
    variable = next((name for name in LOGIN if os.environ.get(name)), "")
    if variable and not os.environ.get(VARIABLE):
        raise BadInput(f"{variable} does not reach a container: {remedy}")


def _plain(text: str) -> str:
    if text.startswith("~"):
        raise BadInput(f"{text}: a container has no home folder, write the whole path")
    return text


def _reads_cache(stage: str) -> bool:
    return bool(_CACHED & set(STAGES[stage].reads))
