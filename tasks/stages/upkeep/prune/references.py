"""Find what is still in use in a home: by runs that are kept, by registered models, and by datasets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from include.artifacts import MANIFEST, ArtifactStore, read_manifest
from include.datasets import Dataset
from include.runs import ARM, SEARCH, Run
from include.stages import BadInput
from tasks.tracking.loading import EVALUATE, PACKAGE, TRAIN
from tasks.tracking.registry import Version

#: The artifacts that belong to a registered version, and the tags with their keys.
_TAGS = {"train": TRAIN, "evaluate": EVALUATE, "package": PACKAGE}
#: The stage and the key of an artifact.
_Key = tuple[str, str]
_T = TypeVar("_T")


def referred(home: Path, versions: Sequence[Version], is_young: Callable[[Path], bool]) -> tuple[set[str], set[_Key]]:
    """Return the names of the runs, and stage and key of the artifacts, that must be kept.

    Runs are kept if they are young, if a registered version names them, or if they are arms of a study, because a later
    study compares them again. So is what these refer to, such as the trials of a search. Raise BadInput for a damaged
    record: it may refer to anything.
    """
    store = ArtifactStore(home)
    names = [folder.name for folder in folders(home / "runs") if is_young(folder) or (folder / ARM).is_file()]
    names += [version.tags["run"] for version in versions if "run" in version.tags]
    runs = _closure(names, lambda name: _runs_of(store, home, name))
    keys = [key for name in runs for key in _artifacts_of(_record(home, name), store)]
    keys += [(stage, version.tags[tag]) for version in versions for stage, tag in _TAGS.items() if tag in version.tags]
    keys += [("ingest", key) for folder in folders(home / "datasets") for key in Dataset(home, folder.name).versions()]
    return set(runs), set(_closure(keys, lambda key: _inputs_of(store, key)))


def folders(path: Path) -> list[Path]:
    """Return the folders in a folder, sorted by name; empty if it does not exist. Symbolic links are left out."""
    with suppress(FileNotFoundError), os.scandir(path) as entries:
        return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    return []


def _closure(first: Iterable[_T], more: Callable[[_T], Iterable[_T]]) -> list[_T]:
    """Return the first items and everything that can be reached from them."""
    found: dict[_T, None] = {}
    waiting = list(first)
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = None
            waiting += more(one)
    return list(found)


def _record(home: Path, name: str) -> Mapping[str, Any]:
    """Return the record of a run; empty if the run no longer exists or if the name is not a plain file name."""
    return Run(home / "runs" / name).record() if Path(name).name == name else {}


def _runs_of(store: ArtifactStore, home: Path, name: str) -> list[str]:
    """Return the runs that a run names: in its record, and in what it says of its search."""
    record = _record(home, name)
    experiment = record.get("experiment", {})
    other = [record.get("from"), experiment.get("model", {}).get("teacher")]
    stages = record.get("stages", {}).items()
    made = [store.path(stage, entry["key"]) for stage, entry in stages if stage == "recommend" and entry["key"]]
    tried = [run for folder in (home / "runs" / name, *made) if record for run in _tried(folder / SEARCH)]
    return [*filter(None, other), *experiment.get("submission", {}).get("runs", []), *tried]


def _tried(file: Path) -> list[str]:
    """Return the runs of a search's trials and of its comparison; none if there is no such file."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        sides = [said["comparison"][side]["runs"] for side in ("winner", "default")] if said["comparison"] else []
        return [str(trial["run"]) for trial in said["trials"]] + [str(run) for runs in sides for run in runs]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} is damaged: remove it") from error


def _artifacts_of(record: Mapping[str, Any], store: ArtifactStore) -> Iterator[_Key]:
    """Yield the artifacts that a run's record refers to, and those that its experiment names by their path."""
    for stage, entry in record.get("stages", {}).items():
        if entry["key"]:
            yield stage, entry["key"]
    for section in record.get("experiment", {}).values():
        for value in section.values():
            if isinstance(value, str) and Path(value).is_relative_to(store.root):
                stage, key, *_ = (*Path(value).relative_to(store.root).parts, "", "")
                yield stage, key


def _inputs_of(store: ArtifactStore, key: _Key) -> Iterable[_Key]:
    path = store.path(*key)
    return read_manifest(path).inputs.items() if (path / MANIFEST).is_file() else ()
