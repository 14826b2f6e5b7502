"""Find what is still in use in a home: by runs that are kept, by registered models, and by datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from include.artifacts import MANIFEST, ArtifactStore, read_manifest
from include.datasets import Dataset
from include.runs import ARM, Run
from tasks.stages.upkeep.prune.folders import folders
from tasks.tracking.loading import EVALUATE, PACKAGE, TRAIN
from tasks.tracking.registry import Version

#: The artifacts that belong to a registered version, and the tags with their keys.
_TAGS = {"train": TRAIN, "evaluate": EVALUATE, "package": PACKAGE}
#: The stage and the key of an artifact.
_Key = tuple[str, str]
_T = TypeVar("_T")


@dataclass(frozen=True)
class References:
    """The names of the runs that are kept, and the stages and keys of the artifacts that are kept."""

    runs: set[str]
    artifacts: set[tuple[str, str]]


def referred(home: Path, versions: Sequence[Version], is_young: Callable[[Path], bool]) -> References:
    """Find the runs and artifacts that must be kept; raise BadInput for a damaged record, whose references are unknown.

    Runs are kept if they are young, if a registered version names them, or if they are arms of a study, because a later
    study compares them again. So is what these refer to.
    """
    store = ArtifactStore(home)
    names = [folder.name for folder in folders(home / "runs") if is_young(folder) or (folder / ARM).is_file()]
    names += [version.tags["run"] for version in versions if "run" in version.tags]
    runs = _closure(names, lambda name: _runs_of(_record(home, name)))
    keys = [key for name in runs for key in _artifacts_of(_record(home, name), store)]
    keys += [(stage, version.tags[tag]) for version in versions for stage, tag in _TAGS.items() if tag in version.tags]
    keys += [("ingest", key) for folder in folders(home / "datasets") for key in Dataset(home, folder.name).versions()]
    return References(set(runs), set(_closure(keys, lambda key: _inputs_of(store, key))))


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


def _runs_of(record: Mapping[str, Any]) -> list[str]:
    """Return the runs that a run's record names."""
    other = [record["from"]] if "from" in record else []
    return [*other, *record.get("experiment", {}).get("submission", {}).get("runs", [])]


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
