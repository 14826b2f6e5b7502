"""What the container of a stage gets in the runtimes docker and kubernetes: image, user, environment, network, folders.

Every folder has the same path inside the container as outside, so that records and artifact keys are the same in all
runtimes.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from include.experiment import Experiment
from include.folders import make_owned_folder
from include.logs import VARIABLE as LOG_FORMAT
from include.runs import AT_WORK
from include.secrets import DATABASE, HUB, KAFKA, LOGIN, SEARCHES, STORES, VARIABLE, of_mlflow
from include.stages import STAGES, BadInput
from include.tables import fixed_part
from spark_bert.deployment.inputs import (
    STAGING,
    is_in_artifact_store,
    named_paths,
    named_runs,
    reads_database,
    reads_kafka,
    staging,
    stores,
    uses_cluster,
    uses_mlflow,
)
from spark_bert.deployment.places import cache, data_path, home

#: The folder of include/ and tasks/ in the images. It is the working directory, so relative paths start here.
CODE = PurePosixPath("/opt/spark-bert")
#: The folder of the secret files in a container.
SECRETS = PurePosixPath("/run/secrets")
#: The user ids that have an entry in the images' /etc/passwd.
NAMED_USERS = range(1000, 65534)


def image(stage: str) -> str:
    """Return the name of the stage's image: its GPU variant if the stage trains and the deployment has GPUs."""
    name = STAGES[stage].image + ("-gpu" if gpus(stage) else "")
    return (
        f"{os.environ.get('SPARK_BERT_IMAGES') or 'spark-bert'}/{name}:{os.environ.get('SPARK_BERT_TAG') or 'latest'}"
    )


def gpus(stage: str) -> int:
    """Return how many GPUs the stage gets: $SPARK_BERT_GPUS if it trains, -1 for all of the machine, 0 by default."""
    if STAGES[stage].image == "data":
        return 0
    text = os.environ.get("SPARK_BERT_GPUS") or "0"
    if text != "all" and not text.isdecimal():
        raise BadInput(f"SPARK_BERT_GPUS={text!r} is not valid: write the number of GPUs per training, or all")
    return -1 if text == "all" else int(text)


def user() -> tuple[int, int]:
    """Return the user id and the group id that stages run as: those of this process, but never root's."""
    if os.getuid() == 0:
        return 1000, 1000
    if os.getuid() not in NAMED_USERS:
        raise BadInput(
            f"stages would run as user {os.getuid()}, but Java needs a user with a name, and the images name only the "
            f"users {NAMED_USERS.start} to {NAMED_USERS[-1]}: start Airflow as one of these users, or as root"
        )
    return os.getuid(), os.getgid()


def is_online(stage: str, experiment: Experiment) -> bool:
    """Return whether the stage may download missing models and data."""
    return experiment.runtime.download and STAGES[stage].cache and not STAGES[stage].is_idle(experiment)


def network(stage: str, experiment: Experiment) -> str:
    """Return the name of the Docker network that the stage needs: `none`, $SPARK_BERT_NETWORK, or `bridge`."""
    online = any(of(stage, experiment) for of in (is_online, reads_database, reads_kafka, stores, uses_cluster))
    online |= SEARCHES in secrets(stage, experiment)
    if STAGES[stage].is_idle(experiment) or not (online or (uses_mlflow(stage, experiment) and _mlflow())):
        return "none"
    return os.environ.get("SPARK_BERT_NETWORK") or "bridge"


def secrets(stage: str, experiment: Experiment) -> tuple[str, ...]:
    """Return the names of the secret files that the stage may read; none if $SPARK_BERT_SECRETS is not set."""
    return needed_secrets(stage, experiment) if os.environ.get(VARIABLE) else ()


def needed_secrets(stage: str, experiment: Experiment) -> tuple[str, ...]:
    """Return the names of the secret files with what the stage needs, whether it gets it as files or otherwise."""
    login = of_mlflow(stage) if uses_mlflow(stage, experiment) and _mlflow() else ()
    database = tuple(DATABASE.values()) if reads_database(stage, experiment) else ()
    kafka = (KAFKA,) if reads_kafka(stage, experiment) else ()
    trials = (SEARCHES,) if "searches" in STAGES[stage].writes else ()
    schemes = {urlsplit(address).scheme for address in stores(stage, experiment)}
    store = tuple(file for scheme, (file, _) in STORES.items() if scheme in schemes)
    return ((HUB,) if is_online(stage, experiment) else ()) + database + kafka + trials + login + store


def environment(stage: str, experiment: Experiment) -> dict[str, str]:
    """Return the environment variables of the stage's container. Users who may inspect it can read them: no secrets."""
    variables = {"SPARK_BERT_HOME": str(home()), "SPARK_BERT_CACHE": str(cache()), "HF_HOME": f"{cache()}/huggingface"}
    if os.environ.get(LOG_FORMAT):
        variables[LOG_FORMAT] = os.environ[LOG_FORMAT]
    names = secrets(stage, experiment)
    if names:
        variables[VARIABLE] = str(SECRETS)
    if HUB in names:
        variables["HF_TOKEN_PATH"] = str(SECRETS / HUB)
    if uses_mlflow(stage, experiment) and _mlflow():
        _check_login()
        variables["MLFLOW_TRACKING_URI"] = _mlflow()
    if url := staging(stage, experiment):
        variables[STAGING] = _without_login(url)
    return variables | {variable: str(SECRETS / file) for file, variable in STORES.values() if file in names}


def writable(stage: str, experiment: Experiment, run: Path) -> list[Path]:
    """Return the folders that the stage writes into."""
    folders = [home() / "artifacts", home() / "checkpoints"]
    if "runs" not in STAGES[stage].writes:
        folders.append(run)
    folders += [home() / name for name in STAGES[stage].writes]
    if uses_mlflow(stage, experiment) and not _mlflow():  # then MLflow writes its database here
        folders.append(home() / "mlflow")
    return [*folders, cache()] if is_online(stage, experiment) else folders


def prepare_folders(stage: str, experiment: Experiment, run: Path) -> None:
    """Create the folders that the stage writes into, and change the owner of root's, but not of their contents."""
    folders = writable(stage, experiment, run)
    if os.getuid() == 0:  # another user owns these folders already, or may not create them
        folders += [home() / "artifacts" / stage, home() / "checkpoints" / stage]
        folders += [run / AT_WORK] if run in folders else []
    if os.getuid() == 0 and "datasets" in STAGES[stage].writes:
        folders.append(home() / "datasets" / (experiment.dataset.name or experiment.data.task))
    if os.getuid() == 0 and "streams" in STAGES[stage].writes:
        folders.append(home() / "streams" / experiment.streaming.name)
    for folder in folders:
        root = home() if folder.is_relative_to(home()) else folder
        make_owned_folder(root, folder, user())


def readable(stage: str, experiment: Experiment, run: Path) -> dict[Path, PurePosixPath]:
    """Return what the stage reads but does not write, as paths on this machine mapped to paths in the container."""
    texts = list(map(_without_home, named_paths(stage, experiment)))
    paths = dict(_mount(text) for text in texts if not is_in_artifact_store(text))
    if STAGES[stage].cache and not is_online(stage, experiment):
        paths[cache()] = PurePosixPath(cache())
    runs = [home() / "runs" / name for names in named_runs(stage, experiment).values() for name in names]
    paths |= {run: PurePosixPath(run) for run in runs if run.resolve().parent == (home() / "runs").resolve()}
    folders = ("runs", *STAGES[stage].sees) if STAGES[stage].records == "all" else STAGES[stage].sees
    paths |= {home() / name: PurePosixPath(home() / name) for name in folders}
    write = writable(stage, experiment, run)
    # The stage itself reports a missing file better than a failed mount.
    return {path: target for path, target in paths.items() if path.exists() and path not in write}


def drop_folder(stage: str, experiment: Experiment) -> Path | None:
    """Return the drop folder if the stage reads one. It is mounted writable, so that ingest can set files aside."""
    drop = experiment.dataset.drop if "datasets" in STAGES[stage].writes else ""
    return data_path(drop) if drop and not is_in_artifact_store(drop) else None


def _mlflow() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI", "")


def _check_login() -> None:
    """Raise BadInput for a login in the server's address, and for one that only Airflow's environment has."""
    token, username, password = LOGIN.values()
    files = f"the file {token}, or into {username} and {password}"
    remedy = f"write the login into {files}, in the folder that {VARIABLE} names"
    if urlsplit(_mlflow()).netloc.count("@"):
        raise BadInput(
            "MLFLOW_TRACKING_URI contains a login, which users who may inspect containers could read: remove it "
            f"from the address, and {remedy}"
        )
    variable = next((name for name in LOGIN if os.environ.get(name)), "")
    if variable and not os.environ.get(VARIABLE):
        raise BadInput(f"{variable} is not passed on to containers: {remedy}")


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is not None:
        files = " or ".join(f"{file} ({scheme}://)" for scheme, (file, _) in STORES.items())
        raise BadInput(
            f"{STAGING} contains a login, which users who may inspect containers could read: remove it from the URL, "
            f"and write it into the file {files} in the folder that {VARIABLE} names"
        )
    return url


def _mount(text: str) -> tuple[Path, PurePosixPath]:
    """Return a path that an experiment names, of a pattern the folder in which it is looked for, and its target."""
    path = data_path(text)
    folder = fixed_part(path)
    target = CODE.joinpath(*PurePosixPath(text).parts[: len(folder.parts) - len(path.parts) or None])
    if target in (CODE, PurePosixPath("/")):
        raise BadInput(f"{text} is a pattern in no folder, and a container sees folders: put the files into one")
    return folder, target


def _without_home(text: str) -> str:
    if text.startswith("~"):
        raise BadInput(f"{text} starts from a home folder, which a container does not have: write the whole path")
    return text
