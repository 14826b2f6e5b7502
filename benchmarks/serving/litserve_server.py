"""A package behind LitServe: `python -m benchmarks.serving.litserve_server PACKAGE FORM PORT`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import litserve

from tasks.inference.packaged_model import PackagedModel

BATCH, TIMEOUT = 32, 0.005  # rows, and the seconds that the first of them waits for the others


class Labels(litserve.LitAPI):  # type: ignore[misc]  # it ships no types
    """Labels texts, in batches: `{"sentence": "..."}` in, `{"label": "...", "probabilities": [...]}` out."""

    def setup(self, device: str) -> None:
        """Load the package."""
        self.model = PackagedModel(Path(sys.argv[1]), sys.argv[2])

    def decode_request(self, request: dict[str, str]) -> str:
        """Return the text of a request."""
        return request["sentence"]

    def predict(self, texts: list[str]) -> list[tuple[str, list[float]]]:
        """Return a label and probabilities for each text."""
        answers = self.model.answers(self.model.logits([texts]))
        chances = [row.tolist() for row in answers["probabilities"]]
        return list(zip(answers["label"], chances, strict=True))

    def encode_response(self, output: tuple[str, list[float]]) -> dict[str, Any]:
        """Return the answer."""
        return dict(zip(("label", "probabilities"), output, strict=True))


if __name__ == "__main__":
    server = litserve.LitServer(Labels(max_batch_size=BATCH, batch_timeout=TIMEOUT), accelerator="cpu")
    server.run(host="127.0.0.1", port=int(sys.argv[3]), generate_client_file=False, log_level="warning")
