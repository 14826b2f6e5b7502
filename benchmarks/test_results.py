"""What make results and the comparison of techniques run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results import TABLES, command, machine
from benchmarks.techniques import COMMON, TECHNIQUES, experiment
from include.ablations import EXPERIMENTS
from include.named_experiments import build
from tasks.launching.launch import ROOT


def test_each_table_has_a_section_of_the_results() -> None:
    sections = [line.removeprefix("## ") for line in (ROOT / "docs/RESULTS.md").read_text().splitlines()]
    assert set(TABLES) <= set(sections)


@pytest.mark.parametrize("options", [each for section in TABLES.values() for each in section])
def test_each_benchmark_has_its_options(options: str) -> None:
    name, *words = command(options, Path("glue"), quick=False)
    code = (ROOT / f"benchmarks/{name}.py").read_text() + (ROOT / "benchmarks/workload.py").read_text()
    assert all(f'"{word}"' in code for word in words if word.startswith("--"))
    assert command(options, None, quick=True) == [name, "--quick"]


def test_the_machine_is_named() -> None:
    assert " CPUs, " in machine()


@pytest.mark.parametrize("task", EXPERIMENTS)
def test_all_techniques_take_as_many_steps(task: str) -> None:
    plain = build(experiment(task, "default", 1, COMMON), "plain")
    for name in TECHNIQUES[task]:
        made = build(experiment(task, name, 1, COMMON), name)
        copies = 1 + len(made.preprocessing.augment)
        assert made.training.epochs * copies == plain.training.epochs
        assert made.training.evaluations == plain.training.evaluations * copies
        assert made.training.patience == 0 and made != plain
