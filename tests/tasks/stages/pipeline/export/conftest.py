from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from include.artifacts import Manifest, write_json
from include.named_experiments import build
from include.runs import Run
from include.stages import STAGES

Finish = Callable[..., Run]


@pytest.fixture
def finish(tmp_path: Path) -> Finish:
    """A run whose validate and predict are done: as many test rows as predictions, in reverse order."""

    def finished(name: str, data: dict[str, Any], predictions: list[Any], quarantine: str = "", root: str = "") -> Run:
        run, experiment = Run(tmp_path / root / "runs" / name), build({"data": data}, "test")
        rows = list(range(len(predictions)))
        tables = {
            "validate": ("test.parquet", pa.table({"row": rows})),
            "preprocess": ("rows.parquet", pa.table({"row": rows})),
            "train": ("rows.parquet", pa.table({"row": rows})),
            "predict": ("predictions.parquet", pa.table({"row": rows[::-1], "prediction": predictions[::-1]})),
        }
        for stage, (file, table) in tables.items():
            part = STAGES[stage].part(experiment)
            key = f"{name}-{stage}"
            with run.store.writing(stage, key) as folder:
                pq.write_table(table, folder / file)
                (folder / "quarantine.jsonl").write_text(quarantine, encoding="utf-8")
                write_json(folder / "made_up.json", {})
                run.add(run.store.commit(folder, Manifest(stage, key, 1, part, {}, "", "", {})), experiment)
        return run

    return finished
