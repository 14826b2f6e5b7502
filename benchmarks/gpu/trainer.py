"""Trainer's worker: `python -m benchmarks.gpu.trainer FOLDER`, where job.json and switches.json lie."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    default_data_collator,
    set_seed,
)

from benchmarks.gpu.cases import SWITCHES
from benchmarks.gpu.passes import finish, start, warming_up
from benchmarks.gpu.turns import Told
from benchmarks.hf_trainer import BEST, arguments, computes_in_bf16
from tasks.encoder.batching import TokenTable
from tasks.launching.rank import JOB
from tasks.training.job import Job

MANY = 10_000  # epochs; the process is killed before
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Rows(Dataset[dict[str, Any]]):
    """The training split; of a fixed length, as run_glue pads it, or as long as each row is."""

    def __init__(self, table: TokenTable, length: int) -> None:
        self._rows = [self._row(table.ids(row), length) for row in range(len(table))]
        self._labels = table.labels.tolist()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self._rows[index], "labels": self._labels[index]}

    @staticmethod
    def _row(ids: Any, length: int) -> dict[str, list[int]]:
        padding = [0] * max(0, length - len(ids))
        return {"input_ids": ids.tolist() + padding, "attention_mask": [1] * len(ids) + padding}


class Turns(TrainerCallback):
    """An epoch is a turn; the first one is the warm-up."""

    def __init__(self, told: Told, rows: int, warm_up: AbstractContextManager[None]) -> None:
        self._told, self._rows = told, rows
        self._turns: Any = None
        self._began = 0.0
        self._warm_up = warm_up

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._turns:
            next(self._turns, None)
        else:
            self._warm_up.__enter__()
        self._began = start(DEVICE)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        turn = finish(DEVICE, self._rows, self._began)
        if self._turns:
            self._told.answer(turn)
        else:
            self._warm_up.__exit__(None, None, None)
            self._turns = iter(self._told)


def main(folder: Path) -> None:
    """Measure as often as told."""
    told, job = Told(), Job.read(folder / JOB)
    switches = json.loads((folder / SWITCHES).read_text(encoding="utf-8"))
    fast = switches != "default"
    table = TokenTable.open(job.data / "train")
    set_seed(job.training.seed)
    trainer = Trainer(
        AutoModelForSequenceClassification.from_pretrained(job.encoder, num_labels=2),
        arguments(job, folder, num_train_epochs=MANY, **(_switches(switches == "compiled") if fast else {})),
        data_collator=DataCollatorWithPadding(AutoTokenizer.from_pretrained(job.encoder))
        if fast
        else default_data_collator,
        train_dataset=Rows(table, 0 if fast else job.experiment.preprocessing.max_length),
        callbacks=[Turns(told, len(table), nullcontext() if switches == "compiled" else warming_up(folder))],
    )
    trainer.train()


def _switches(compiled: bool) -> dict[str, Any]:
    """Trainer's public switches that make it fast, in addition to dynamic padding."""
    return {
        **BEST, "bf16": computes_in_bf16(), "dataloader_num_workers": 2, "dataloader_persistent_workers": True,
        "torch_compile": compiled, "logging_nan_inf_filter": False,  # else it waits for the loss of every step
    }  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
