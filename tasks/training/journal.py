"""What a training says of itself: metrics.jsonl, and a progress bar or a line in the log every few seconds."""

from __future__ import annotations

import json
import logging
import math
import time
from pathlib import Path

from tqdm import tqdm

from tasks.training.sampler import Share

log = logging.getLogger(__name__)
METRICS = "metrics.jsonl"
SECONDS = 5  # between two lines of the log


class Journal:
    """Rank 0 writes and shows; on other ranks (output None) it is silent."""

    def __init__(self, output: Path | None, steps: int, terminal: bool) -> None:
        self._path = output and output / METRICS
        self._file = self._path and self._path.open("w", encoding="utf-8")
        self._bar = tqdm(total=steps, unit="step", mininterval=1, disable=output is None or not terminal)
        self._logs = output is not None and not terminal
        self._steps = steps
        self._logged = time.monotonic()
        self._text = ""

    def write(self, share: Share, values: dict[str, float]) -> None:
        """Add a line to metrics.jsonl: a training line has a loss, the others are the dev split's metrics."""
        if "loss" in values:
            self._text = f"loss {values['loss']:.4f}, {values['rows_per_second']:.0f} rows/s"
            self._bar.set_postfix_str(self._text, refresh=False)
        else:
            self._say(share, "dev " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()))
        if self._file:  # JSON has no NaN: null stands for what is not finite
            numbers = {name: value if math.isfinite(value) else None for name, value in values.items()}
            line = {"step": share.step, "epoch": round(share.epoch, 4), **numbers}
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()

    def state(self) -> str:
        """What was written so far, for a checkpoint."""
        return self._path.read_text(encoding="utf-8") if self._path else ""

    def load(self, state: str, step: int) -> None:
        """Go on after the step, with what was written by then and nothing more."""
        if self._file:
            self._file.seek(0)  # or the next line would go where the last one ended, after as many NULs
            self._file.truncate()
            self._file.write(state)
            self._file.flush()
        self._bar.update(step)

    def tick(self, share: Share) -> None:
        """A step is done."""
        self._bar.update()
        if time.monotonic() - self._logged >= SECONDS:
            self._say(share, self._text)

    def _say(self, share: Share, text: str) -> None:
        if self._logs:
            self._logged = time.monotonic()
            said = f": {text}" if text else ""  # before the first loss there is nothing to say but where we are
            log.info("step %d of %d, epoch %.2f%s", share.step, self._steps, share.epoch, said)

    def close(self) -> None:
        """End the bar and the file."""
        self._bar.close()
        if self._file:
            self._file.close()
