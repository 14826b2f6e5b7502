"""What of a home is still referred to: by runs that are kept, by registered models and by datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from include.artifacts import MANIFEST, ArtifactStore, read_manifest
from include.datasets import Dataset
from include.runs import Run
from tasks.stages.prune.folders import folders
from tasks.tracking.loading import EVALUATE, TRAIN
from tasks.tracking.registry import Version

#: The artifacts that a registered version is made from, and the tags that say their keys.
_TAGS = {"train": TRAIN, "evaluate": EVALUATE}
#: A stage and a key.
_Key = tuple[str, str]
_T = TypeVar("_T")


@dataclass(frozen=True)
class References:
    """The names of the runs that are kept, and stage and key of the artifacts."""

    runs: set[str]
    artifacts: set[tuple[str, str]]


def referred(home: Path, versions: Sequence[Version], is_young: Callable[[Path], bool]) -> References:
    """What is kept. A reference leads on: from a run to the runs that it names, from an artifact to its inputs.

    Runs are kept while they are young, while a registered version names them, and as arms of a study, which a later
    study puts together again.

    Raises BadInput for a record or a manifest that is damaged: what it refers to is not known.
    """
    store = ArtifactStore(home)
    names = [folder.name for folder in folders(home / "runs") if is_young(folder) or (folder / "arm.json").is_file()]
    names += [version.tags["run"] for version in versions if "run" in version.tags]
    runs = _closure(names, lambda name: _runs_of(_record(home, name)))
    keys = [key for name in runs for key in _artifacts_of(_record(home, name), store)]
    keys += [(stage, version.tags[tag]) for version in versions for stage, tag in _TAGS.items() if tag in version.tags]
    keys += [("ingest", key) for folder in folders(home / "datasets") for key in Dataset(home, folder.name).versions()]
    return References(set(runs), set(_closure(keys, lambda key: _inputs_of(store, key))))


def _closure(first: Iterable[_T], more: Callable[[_T], Iterable[_T]]) -> list[_T]:
    """The first ones, and what can be reached from them."""
    found: dict[_T, None] = {}
    waiting = list(first)
    while waiting:
        one = waiting.pop()
        if one not in found:
            found[one] = None
            waiting += more(one)
    return list(found)


def _record(home: Path, name: str) -> Mapping[str, Any]:
    """The run's record; empty for one that is gone, and for a name that is none."""
    return Run(home / "runs" / name).record() if Path(name).name == name else {}


def _runs_of(record: Mapping[str, Any]) -> list[str]:
    """The runs that a run names."""
    other = [record["from"]] if "from" in record else []
    return [*other, *record.get("experiment", {}).get("submission", {}).get("runs", [])]


def _artifacts_of(record: Mapping[str, Any], store: ArtifactStore) -> Iterator[_Key]:
    """The artifacts that a run's record points at, and those that its experiment names by their path."""
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
