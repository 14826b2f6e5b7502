"""What the check of a GPU computes itself; its quick form is one of test_quick's."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel

from include.named import load
from tasks.training.factory import build_trainer
from tasks.training.job import Job
from tests.benchmarks.gpu import __main__ as check
from tests.benchmarks.gpu import limits, losses
from tests.benchmarks.gpu.cases import Case, beside, table5
from tests.benchmarks.gpu.engine import one_pass
from tests.benchmarks.gpu.report import Work, main_table, sizes_table
from tests.benchmarks.gpu.rows import SMALL, lengths, operations, write_encoder, write_rows
from tests.benchmarks.gpu.turns import Turn

WORK = Work(rows=100, tokens=1300, operations=1e9, limit=1e12)


def test_without_a_gpu_it_says_so_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    assert check.main() == 1
    assert "there is no GPU" in capsys.readouterr().err


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
    *_, ours, theirs = main_table(cases, measured, WORK, "base", "theirs").splitlines()
    cells = [cell.strip() for cell in ours.strip("|").split("|")]
    assert cells == [
        "ours",
        "30 (20 to 44)",
        "390",
        "0.0",
        "40",
        "+100.0",
        "60.0",
        "37.2",
        "58.3",
        "4.00 (3.00 to 4.00)",
    ]
    assert theirs.endswith("| 1.00 (1.00 to 1.00) |")
    *_, small, large = sizes_table({256: measured, 32: {"ours": turns(8)}}, WORK, ["ours", "theirs"]).splitlines()
    assert small == "| 32 | 8 |  | 0.0 |  |"
    assert large.endswith("| 4.00 (3.00 to 4.00) |")


def test_the_limit_is_that_of_a_matrix_product() -> None:
    assert limits.measured(torch.device("cpu"), size=64) > 0
    assert limits.data_sheet("NVIDIA H200") == 989e12
    assert limits.data_sheet("some other") is None


def test_a_loss_that_differs_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["fp32", "bf16, no padding"]
    losses.prepare(tmp_path, rows=64)
    for side in ("here", "cpu"):
        losses.main(tmp_path, side, names)
    lines, wrong = losses.judge(tmp_path, names)
    assert all(f"| {name} |" in lines for name in names) and not wrong
    monkeypatch.setitem(losses.VARIANTS, "fp32", losses.Variant({}, tolerance=-1.0))
    assert losses.judge(tmp_path, names)[1] == ["fp32: a loss differs by 0.0e+00, more than -1e+00"]
    (tmp_path / "here" / "fp32.json").write_text("[0.7, null]")
    assert losses.judge(tmp_path, names)[1] == ["fp32: the loss of step 2 is not finite"]
