"""The model that labels rows, and its form: from the folder that the experiment names, or the champion's package."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from include.artifacts import MANIFEST, sha256
from include.experiment import Experiment
from include.fields.results import Prediction
from include.fields.training import CHAMPION
from include.folders import user_folder
from include.runs import Run
from include.stages import BadInput
from tasks import digests
from tasks.encoder.spec import check_task
from tasks.inference.packaged_backends import MODEL
from tasks.inference.trained_model import TrainedModel, is_package
from tasks.tracking.loading import MANIFEST_SHA256, load_champion, load_package
from tasks.tracking.registry import Registry

#: The section of the experiment that names a model and the columns with the texts.
Naming = Literal["scoring", "streaming"]
_TEACHER = "model.teacher"


@dataclass(frozen=True)
class Model:
    """A model that labels rows."""

    version: str  # what the predictions say of it: the name and number of a champion, or a digest of the files
    digest: str  # it changes with the files
    trained: TrainedModel


def chosen(experiment: Experiment, run: Run, section: Naming) -> Model:
    """Return the model that the section names, or the champion, whose files are verified, in the form to compute in."""
    field = f"{section}.model"
    if named := getattr(experiment, section).model:
        model = _of_folder(user_folder(named), experiment.prediction, field)
    else:
        model = _champion(experiment, run, experiment.prediction, f"name the folder of a model as {field}")
    _check_texts(getattr(experiment, section).text2, model, section)
    model.trained.guard(experiment.prediction)  # before rows are read
    return model


def teacher_of(experiment: Experiment, run: Run) -> Model:
    """Return the experiment's teacher in its fastest form, after verifying its files and what it was trained for."""
    named, other = experiment.model.teacher, experiment.model.teacher_run
    if named == CHAMPION:
        model = _champion(experiment, run, Prediction(), "name another model.teacher")
    elif other:
        model = _of_run(other, run)
    else:
        model = _of_folder(user_folder(named), Prediction(), _TEACHER)
    try:
        check_task(experiment.task, model.trained.head())
    except BadInput as error:
        raise BadInput(
            f"model.teacher {named} cannot teach this task: {error}. Name another teacher, write its labels in its "
            "order as data.labels (or its range as data.score_range), or correct what its config.json says of them"
        ) from error
    return model


def teachers_root(experiment: Experiment, run: Run) -> Path:
    """Return the folder in which the teacher's lies, in this process: the artifact store, or what model.teacher names.

    Containers and other checkouts see both at other places.
    """
    named = experiment.model.teacher
    in_store = named == CHAMPION or experiment.model.teacher_run
    return run.store.root if in_store else user_folder(named)


def _of_run(name: str, run: Run) -> Model:
    other = Run(run.folder.parent / name)
    if other.folder == run.folder:
        raise BadInput(f"{_TEACHER} is {name}, the run itself: name another run, or train this model in a new run")
    if not other.file.is_file():
        raise BadInput(
            f"{_TEACHER} is {name}, but there is no run {other.folder}: name one that is there, champion, or a folder "
            "as a path with a slash"
        )
    train = other.artifact("train")
    packaged = other.record()["stages"].get("package", {}).get("key", "")
    package = run.store.find("package", packaged, hashed=True) if packaged else None
    if package is None:  # that a form is missing does not matter: PyTorch computes the same
        run.store.find("train", train.manifest.key, hashed=True)
    made = package or train
    folder = made.path if package else made.path / MODEL
    return Model(name, sha256(made.path / MANIFEST), TrainedModel.of(folder, Prediction()))


def _champion(experiment: Experiment, run: Run, prediction: Prediction, otherwise: str) -> Model:
    registry = Registry.of(experiment, run)
    found = load_champion(registry, run.store)
    if found is None:
        raise BadInput(
            f"{registry.model} has no champion: promote a model with the Dag retrain, name another dataset.name or "
            f"data.task, or {otherwise}"
        )
    version, artifact = found
    package = load_package(version, run.store)
    # Without its package, PyTorch computes the champion.
    trained = TrainedModel.of(package.path if package else artifact.path / MODEL, prediction)
    return Model(f"{version.model}/{version.number}", version.tags[MANIFEST_SHA256], trained)


def _check_texts(second: str, model: Model, section: Naming) -> None:
    texts = model.trained.head().texts
    if texts in (None, 2 if second else 1):
        return
    name = f"{model.version} ({model.trained.folder})"
    if texts == 1:
        raise BadInput(
            f"{section}.text2 names the column {second!r}, but {name} was trained on single texts: leave "
            f"{section}.text2 empty, or choose a model for pairs"
        )
    raise BadInput(
        f"{section}.text2 is empty, but {name} was trained on pairs: name the column with the second text as "
        f"{section}.text2, or choose a model for single texts"
    )


def state_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time in nanoseconds of each file of a model's folder, by its path in the folder."""
    found = {str(file.relative_to(folder)): file.stat() for file in _files(folder)}
    return {name: (status.st_size, status.st_mtime_ns) for name, status in found.items()}


def _files(folder: Path) -> list[Path]:
    # Loading a package elsewhere leaves compiled code in its folder.
    every = folder.rglob("*") if folder.is_dir() else ()
    return sorted(file for file in every if file.is_file() and file.parent.name != "__pycache__")


def _of_folder(folder: Path, prediction: Prediction, field: str) -> Model:
    files = _files(folder)
    if folder / "config.json" not in files and not is_package(folder):
        raise BadInput(
            f"{folder} is not the folder of a model or of a package, because it has no config.json and no "
            f"package.json in it: correct {field}"
        )
    lines = [f"{file.relative_to(folder)} {digests.digest(file)}" for file in files]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return Model(f"sha256:{digest[:16]}", digest, TrainedModel.of(folder, prediction))
