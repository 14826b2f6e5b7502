"""What the check of a GPU computes itself; its quick form is one of test_quick's."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from benchmarks.gpu import __main__ as check
from benchmarks.gpu import engine_tests, limits, losses
from benchmarks.gpu import turns as turning
from benchmarks.gpu.cases import COMPILED, ONE_GPU, TRAINER, Case, beside, table5
from benchmarks.gpu.engine import one_pass
from benchmarks.gpu.goals import goals_table
from benchmarks.gpu.report import Work, main_table, sizes_table
from benchmarks.gpu.rows import SMALL, lengths, operations, write_encoder, write_rows
from benchmarks.gpu.turns import Turn, take_turns, with_one_gpu
from include.named_experiments import load
from include.stages import BadInput
from tasks.launching.launch import ROOT
from tasks.training.factory import build_trainer
from tasks.training.job import Job

WORK = Work(rows=100, tokens=1300, operations=1e9, limit=1e12)


def test_without_a_gpu_it_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "usable_gpus", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert check.main() == 1
    assert "there is no GPU" in capsys.readouterr().err

    def broken() -> int:
        raise BadInput("the driver is too old")

    monkeypatch.setattr(check, "usable_gpus", broken)
    assert check.main() == 1
    assert "the driver is too old: nothing was checked" in capsys.readouterr().err


def test_trainers_worker_computes_what_transformers_does() -> None:
    """The engine replaces transformers' function for masks when it is imported."""
    look = (
        "import benchmarks.gpu.trainer; from transformers import masking_utils as own; "
        "assert own.ALL_MASK_ATTENTION_FUNCTIONS['sdpa'] is own.sdpa_mask"
    )
    subprocess.run([sys.executable, "-c", look], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", ["two ranks", "two ranks, in shards"])
def test_two_ranks_have_the_losses_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    told, wrong = losses.compare(tmp_path, [name], time.monotonic() + 240)
    assert name in told and not wrong


def test_rows_are_as_long_as_those_of_sst2() -> None:
    found = lengths(20_000, np.random.default_rng(0))
    assert found.mean() == pytest.approx(13.3, abs=0.3) and found.min() >= 3 and found.max() <= 66


def test_operations_are_those_that_torch_counts() -> None:
    config = BertConfig(**SMALL)
    model = BertModel(config, add_pooling_layer=False)
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(3, 20, dtype=torch.int64)).last_hidden_state.sum().backward()
    # Nobody needs the gradient of the first layer's input, but the embeddings' weights do.
    assert operations(config, np.full(3, 20)) == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_pass_trains_on_all_rows(tmp_path: Path) -> None:
    write_encoder(tmp_path / "encoder", SMALL)
    for split in ("train", "dev"):
        write_rows(tmp_path / "data" / split, 40, SMALL["vocab_size"], seed=1)
    (tmp_path / "output").mkdir()
    for case in (table5()[0], next(case for case in beside() if not case.trainer)):
        job = Job(
            load("{}", (*case.overrides, "training.batch_size=8", "training.ranks=1")),
            tmp_path / "encoder", tmp_path / "data", tmp_path / "output",
        )  # fmt: skip
        trainer = build_trainer(job, stopping=lambda: False)
        assert one_pass(trainer, at_most=0).rows < 40
        first, second = one_pass(trainer), one_pass(trainer)
        assert first.rows == second.rows == 40
        assert min(first.seconds, first.memory) > 0


def test_every_row_of_the_papers_is_an_experiment() -> None:
    cases = [*table5(), *beside()]
    for case in cases:
        load("{}", case.overrides)
    assert len({case.name for case in cases}) == len(cases)
    assert [case.papers for case in table5() if case.papers][-1] == (37.2, 58.3)


def turns(*speeds: float, memory: int = 10**8) -> list[Turn]:
    return [Turn(100, 100 / speed, memory) for speed in speeds]


def test_the_tables_compare_round_by_round() -> None:
    measured = {"base": turns(10, 20, 15), "ours": turns(20, 44, 30, memory=4 * 10**7), "theirs": turns(5, 11, 10)}
    cases = [Case("base", papers=(0, 0)), Case("ours", papers=(37.2, 58.3)), Case("theirs"), Case("lost")]
    *_, ours, theirs, lost = main_table(cases, measured, WORK, "base", "theirs").splitlines()
    cells = [cell.strip() for cell in ours.strip("|").split("|")]
    assert cells == [
        "ours", "30 (20 to 44)", "390", "0.0", "40", "+100.0", "60.0", "37.2", "58.3", "4.00 (3.00 to 4.00)",
    ]  # fmt: skip
    assert theirs.endswith("| 1.00 (1.00 to 1.00) |")
    assert lost.startswith("| lost | not measured |")
    *_, small, large = sizes_table({256: measured, 32: {"ours": turns(8)}}, WORK, ["ours", "theirs"]).splitlines()
    assert small == "| 32 | 8 | not measured | 0.0 |  |"
    assert large.endswith("| 4.00 (3.00 to 4.00) |")


def test_a_share_of_a_limit_that_is_not_known_is_left_out() -> None:
    assert (WORK.share(10), dataclasses.replace(WORK, limit=None).share(10)) == ("0.0", "")


def test_goals_are_met_missed_or_not_measured() -> None:
    cases = [*table5(), *beside()]
    full = [case for case in cases if case.papers][-1]
    measured = {
        cases[0].name: turns(1000, memory=10**9), full.name: turns(1000, memory=4 * 10**8 + 1),
        ONE_GPU.name: turns(18_000, 20_000, 21_000), COMPILED.name: turns(17_000), TRAINER.name: turns(5000),
        "Trainer, as run_glue uses it": turns(1000),
    }  # fmt: skip
    *_, speed, times, memory = goals_table(cases, measured).splitlines()
    assert speed.endswith("| 20,000 | 20,000.0 | met |")
    assert times.endswith("| 4 | 4.0 | met |")
    assert memory.startswith(f"| memory, -%, {full.name} |") and memory.endswith("| 60 | 60.0 | missed |")
    measured[TRAINER.name] = turns(5001)
    assert goals_table(cases, measured).splitlines()[-2].endswith("| missed |")
    measured[COMPILED.name] = turns(25_005)
    assert goals_table(cases, measured).splitlines()[-2].endswith("| 4 | 5.0 | met |")
    for name in (ONE_GPU.name, COMPILED.name, full.name):
        del measured[name]
    *_, speed, times, memory = goals_table(cases, measured).splitlines()
    assert all(line.endswith("|  | not measured |") for line in (speed, times, memory))


def odd(root: Path) -> Callable[[Case], tuple[str, Path]]:
    """Starts a worker that does what the case's name says."""

    def start(case: Case) -> tuple[str, Path]:
        (root / case.name).mkdir()
        return "benchmarks.odd_worker", root / case.name

    return start


@pytest.mark.parametrize(("visible", "first"), [({}, "0"), ({"CUDA_VISIBLE_DEVICES": "3,1"}, "3")])
def test_all_cases_have_the_same_gpu(visible: dict[str, str], first: str) -> None:
    assert with_one_gpu({**visible, "HOME": "/root"}) == {"CUDA_VISIBLE_DEVICES": first, "HOME": "/root"}


def test_a_case_that_fails_or_hangs_does_not_take_the_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turning, "LIMIT", 3.0)
    cases = [Case(name) for name in ("fails at once", "works", "hangs", "fails later", "works, too")]
    measured, lost = take_turns(cases, odd(tmp_path), 2, patience=60, end=time.monotonic() + 90)
    assert {name: [turn.rows for turn in turns] for name, turns in measured.items()} == {
        "works": [1, 2], "works, too": [1, 2],
    }  # fmt: skip
    assert lost["hangs"] == "no answer within 3 seconds"
    assert lost["fails at once"].endswith("ValueError: no memory\n") and "exit code 1" in lost["fails at once"]
    assert lost["fails later"].endswith("ValueError: no memory left\n")


def test_no_case_is_waited_for_when_the_time_is_over(tmp_path: Path) -> None:
    assert take_turns([Case("works")], odd(tmp_path), 2, patience=60, end=time.monotonic()) == (
        {}, {"works": "no answer within 0 seconds"},
    )  # fmt: skip
    late = engine_tests.run(quick=True, end=time.monotonic())
    assert late.failed == [late.summary] == [f"{engine_tests.FILES[0]}: not done after 0 seconds"]


def test_losses_are_compared_where_another_training_has_none(tmp_path: Path) -> None:
    names = ["fp32", "of no variant", "clipping"]
    losses.prepare(tmp_path, rows=64)
    lost = losses.train_all(tmp_path, "here", names, os.environ, end=time.monotonic() + 120)
    assert list(lost) == names[1:2] and "exit code 1:" in lost["of no variant"] and "KeyError" in lost["of no variant"]
    losses.main(tmp_path, "cpu", ["fp32", "clipping"])
    lines, wrong = losses.judge(tmp_path, names, lost)
    assert "| of no variant |  |  |  | not compared |" in lines and lines.count("0.0e+00") == 2
    (only,) = wrong
    assert only.startswith("of no variant: the training ended")
    assert list(losses.train_all(tmp_path, "late", names, os.environ, end=time.monotonic())) == names


def test_the_limit_is_that_of_a_matrix_product() -> None:
    assert limits.measured(torch.device("cpu"), size=64) > 0
    assert limits.measured_apart(64, time.monotonic()) == (None, "not done after 0 seconds")
    assert limits.data_sheet("NVIDIA H200") == 989e12
    assert limits.data_sheet("some other") is None


def test_a_loss_that_differs_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["fp32", "bf16, no padding"]
    losses.prepare(tmp_path, rows=64)
    for side in ("here", "cpu"):
        losses.main(tmp_path, side, names)
    lines, wrong = losses.judge(tmp_path, names, {})
    assert all(f"| {name} |" in lines for name in names) and not wrong
    monkeypatch.setitem(losses.VARIANTS, "fp32", losses.Variant({}, tolerance=-1.0))
    assert losses.judge(tmp_path, names, {})[1] == ["fp32: a loss differs by 0.0e+00, more than -1e+00"]
    (tmp_path / "here" / "fp32.json").write_text("[0.7, null]")
    assert losses.judge(tmp_path, names, {})[1] == ["fp32: the loss of step 2 is not finite"]
