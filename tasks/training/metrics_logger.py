"""Progress of a training: metrics.jsonl, and either a progress bar or a line in the log every few seconds."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from tasks.scoring.metrics import as_json
from tasks.training.job import METRICS
from tasks.training.sampler import RankBatch

log = logging.getLogger(__name__)
SECONDS = 5  # between two lines of the log


class MetricsLogger:
    """Writes metrics and shows progress on rank 0; on the other ranks, whose output is None, it does nothing."""

    def __init__(self, output: Path | None, steps: int, terminal: bool) -> None:
        self._path = output and output / METRICS
        self._file = self._path and self._path.open("w", encoding="utf-8")
        self._bar = tqdm(total=steps, unit="step", mininterval=1, disable=output is None or not terminal)
        self._logs = output is not None and not terminal
        self._steps = steps
        self._logged = time.monotonic()
        self._text = ""
        self._step = 0

    def write(self, batch: RankBatch, values: dict[str, float], details: Mapping[str, Any] | None = None) -> None:
        """Append metrics of the training, which have a "loss", or of the dev split, and finite details."""
        if "loss" in values:
            self._text = f"loss {values['loss']:.4f}, {values['rows_per_second']:.0f} rows/s"
            self._bar.set_postfix_str(self._text, refresh=False)
        else:
            self._log(batch, "dev " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))
        if self._file:
            where = {"step": batch.step, "epoch": round(batch.epoch, 4), "time": round(time.time(), 3)}
            line = {**where, **as_json(values), **(details or {})}
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()

    def tick(self, batch: RankBatch) -> None:
        """Show that a step is done."""
        self._step = batch.step
        self._bar.update()
        if time.monotonic() - self._logged >= SECONDS:
            self._log(batch, self._text)

    def close(self) -> None:
        """Close the bar and the file."""
        self._bar.close()
        if self._file:
            self._file.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the lines that were written so far, and the last step."""
        return {"written": self._path.read_text(encoding="utf-8") if self._path else "", "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace what was written."""
        if self._file:
            # Truncating alone would leave the file's position, and the next line would follow NUL bytes.
            self._file.seek(0)
            self._file.truncate()
            self._file.write(state["written"])
            self._file.flush()
        self._step = state["step"]
        self._bar.update(self._step)

    def _log(self, batch: RankBatch, text: str) -> None:
        if self._logs:
            self._logged = time.monotonic()
            details = f": {text}" if text else ""  # there is no loss before the first training line
            log.info("step %d of %d, epoch %.2f%s", batch.step, self._steps, batch.epoch, details)
