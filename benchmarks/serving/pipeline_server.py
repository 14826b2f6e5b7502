"""A model behind FastAPI, as its documentation shows it: `python -m benchmarks.serving.pipeline_server PACKAGE PORT`.

transformers' pipeline labels the text of each request, in fp32, in the threads that FastAPI has for plain functions.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import pipeline

from tasks.inference.packaged_backends import MODEL


class Query(BaseModel):
    """A request."""

    sentence: str


def application(folder: Path) -> FastAPI:
    """Return an application that labels texts with the model in a folder, in transformers' format."""
    app, labels = FastAPI(), pipeline("text-classification", model=str(folder), device="cpu")

    @app.post("/")
    def label(query: Query) -> dict[str, Any]:
        answer: dict[str, Any] = labels(query.sentence)[0]
        return answer

    return app


if __name__ == "__main__":
    uvicorn.run(application(Path(sys.argv[1]) / MODEL), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
