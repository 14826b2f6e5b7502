"""What is said of the capacity of the service when another model answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from include.artifacts import write_json
from tasks.inference.capacity import Capacity, compared


def package(folder: Path, form: str, rate: float, processor: str = "EPYC") -> Path:
    folder.mkdir()
    forms = [{"name": form, "speeds": {"many_clients": {"rows_per_second": rate}}}]
    write_json(folder / "package.json", {"served": form, "machine": {"processor": processor}, "forms": forms})
    return folder


@pytest.mark.parametrize(
    ("processor", "where"),
    [("EPYC", "1,036 and 280 on EPYC, where"), ("Xeon", "1,036 on Xeon, 280 on EPYC, where they were packaged.")],
)
def test_the_ratio_is_that_of_what_was_measured(tmp_path: Path, processor: str, where: str) -> None:
    slow = Capacity.of(package(tmp_path / "slow", "torch-fp32", 280))
    fast = Capacity.of(package(tmp_path / "fast", "openvino-bf16", 1036, processor), "openvino-bf16")
    found = compared(fast, "version 4", slow, "version 3")
    times = "version 4 (openvino-bf16) answers 3.70 times as many texts per second as version 3 (torch-fp32)"
    assert found.startswith(f"With 32 clients, {times}: {where}")


def test_nothing_is_said_of_a_package_that_does_not_say(tmp_path: Path) -> None:
    known = Capacity.of(package(tmp_path / "known", "torch-fp32", 280))
    write_json(tmp_path / "package.json", {"served": "torch-fp32", "forms": []})
    for unknown in (Capacity.of(tmp_path), Capacity.of(tmp_path / "gone"), Capacity.of(tmp_path / "known", "other")):
        assert (
            unknown is None and compared(known, "new", unknown, "old") == compared(unknown, "new", known, "old") == ""
        )
