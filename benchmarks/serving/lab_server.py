"""A model behind a plain web server: `python -m benchmarks.serving.lab_server PACKAGE PORT`.

It is what an application of Flask's own server does, with the standard library's: a thread per request, and a
transformers model in fp32 that computes one text at a time, padded to a fixed length.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tasks.inference.packaged_backends import MODEL

LENGTH = 128  # tokens


class Server(ThreadingMixIn, WSGIServer):
    """A thread per request."""

    request_queue_size = 128  # as Flask's has; with the default of 5, clients wait for seconds to be accepted
    daemon_threads = True


class Handler(WSGIRequestHandler):
    """Logs no request, and sends the body of an answer without waiting for the client to confirm the head."""

    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class Application:
    """Labels a text: `{"sentence": "..."}` in, `{"label": "...", "probabilities": [...]}` out.

    Args:
        folder: the folder of a model in transformers' format.
    """

    def __init__(self, folder: Path) -> None:
        model = AutoModelForSequenceClassification.from_pretrained(
            folder, local_files_only=True, trust_remote_code=True, dtype=torch.float32
        )
        self._tokenizer, self._model = AutoTokenizer.from_pretrained(folder), model.eval()
        self._length = min(LENGTH, getattr(model.config, "max_position_embeddings", LENGTH))
        self._lock = threading.Lock()  # texts at the same time would take each other's cores

    def __call__(self, environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        request = json.loads(environment["wsgi.input"].read(int(environment["CONTENT_LENGTH"])))
        body = json.dumps(self._label(request["sentence"])).encode()
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    def _label(self, text: str) -> dict[str, Any]:
        with self._lock, torch.inference_mode():
            inputs = self._tokenizer(
                text, padding="max_length", truncation=True, max_length=self._length, return_tensors="pt"
            )
            chances = self._model(**inputs)[0].softmax(-1)[0].tolist()
        label = self._model.config.id2label[chances.index(max(chances))]
        return {"label": label, "probabilities": chances}


if __name__ == "__main__":
    application = Application(Path(sys.argv[1]) / MODEL)
    make_server("127.0.0.1", int(sys.argv[2]), application, Server, Handler).serve_forever()
