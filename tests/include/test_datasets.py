from __future__ import annotations

from pathlib import Path

import pytest

from include.artifacts import locked
from include.datasets import Dataset
from include.stages import BadInput, Transient


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset(tmp_path, "reviews")


def test_a_dataset_that_has_not_begun_has_no_versions(dataset: Dataset) -> None:
    assert dataset.versions() == [] and not dataset.folder.exists()


def test_a_version_that_was_overtaken_is_not_accepted(dataset: Dataset) -> None:
    dataset.accept("a", "")
    dataset.accept("b", "a")
    dataset.accept("a", "")  # again, as when a stage is retried
    with pytest.raises(Transient, match="dataset reviews changed from a to b while c was made: run ingest"):
        dataset.accept("c", "a")
    with pytest.raises(Transient, match="from nothing to b"):
        dataset.accept("c", "")
    assert dataset.versions() == ["b", "a"]


def test_one_version_is_accepted_at_a_time(dataset: Dataset) -> None:
    with locked(dataset.folder), pytest.raises(Transient, match="is in use by process"):
        dataset.accept("a", "")
    dataset.accept("a", "")
    assert dataset.versions() == ["a"]


@pytest.mark.parametrize("text", ["", "[]", '{"version": "a"}'])
def test_a_damaged_record_is_named_with_its_remedy(dataset: Dataset, text: str) -> None:
    dataset.accept("a", "")
    dataset.file.write_text(text)
    with pytest.raises(BadInput, match=r"reviews/versions\.json is damaged: write it again as"):
        dataset.versions()
