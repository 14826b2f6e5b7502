"""What is put together from files with parts of tensors is whole, or an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from include.artifacts import MANIFEST, inventory, write_json
from include.stages import BadInput
from tasks.communication.layout import Place
from tasks.launching.rank import train
from tasks.training.checkpoint import load_pieces, save_pieces
from tests.tasks.launching.jobs import make_job

CPU = torch.device("cpu")
WHOLE = torch.arange(24.0).view(6, 4)


def rows(first: int, last: int, columns: tuple[int, int] = (0, 4)) -> Place:
    return Place((first, columns[0]), (last - first, columns[1] - columns[0]), tuple(WHOLE.shape), written=True)


def write(folder: Path, *places: Place) -> list[Path]:
    """Write these parts of the tensor, each into a file, and the scalar "step" into all of them."""
    files = []
    for number, place in enumerate(places):
        (top, left), (height, width) = place.offset, place.shape
        part = {"weight": WHOLE[top : top + height, left : left + width], "step": torch.tensor(3.0)}
        save_pieces(part, lambda name, place=place: place, folder / f"{number}")  # type: ignore[misc]
        files.append(folder / f"{number}")
    return files


def test_a_part_is_put_together_from_whatever_pieces_there_are(tmp_path: Path) -> None:
    files = write(tmp_path, rows(0, 2), rows(2, 6, (0, 3)), rows(2, 6, (3, 4)))
    found = load_pieces(files, None, CPU)
    assert torch.equal(found["weight"], WHOLE) and found["step"] == 3
    part = load_pieces(files, lambda name: rows(1, 5, (2, 4)), CPU)
    assert torch.equal(part["weight"], WHOLE[1:5, 2:]) and part["step"] == 3


def test_what_no_file_has_is_an_error_also_if_another_piece_is_there_twice(tmp_path: Path) -> None:
    files = write(tmp_path, rows(0, 2), rows(4, 6), rows(4, 6))
    assert torch.equal(load_pieces(files, lambda name: rows(0, 2), CPU)["weight"], WHOLE[:2])
    for place_of in (None, lambda name: rows(1, 5), lambda name: rows(2, 4)):
        with pytest.raises(KeyError, match="a part of weight"):
            load_pieces(files, place_of, CPU)


def test_a_checkpoint_that_lacks_a_part_of_a_weight_says_which_and_what_to_do(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    train(job, tmp_path)  # tmp_path exists, so it is asked to stop at once
    folder = job.folder / "step-1"
    shared = load_file(folder / "shared.safetensors")
    name = next(name for name in shared if name.startswith("model.") and "query.weight" in name)
    weight = shared.pop(name)
    half = Place((0, 0), (len(weight) // 2, weight.shape[1]), tuple(weight.shape), written=True)
    save_file(shared, folder / "shared.safetensors")
    save_pieces({name: weight[: len(weight) // 2]}, lambda name: half, folder / "part-0.safetensors")
    (folder / MANIFEST).unlink()
    write_json(folder / MANIFEST, {"files": inventory(folder)})
    with pytest.raises(BadInput, match=rf"step 1 in {job.folder} lacks 'a part of {name}': remove that checkpoint"):
        train(job, tmp_path / "never")
