"""Small models as the stage train writes them, whose predictions differ from row to row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import torch

from tasks.encoder.loading import copy_tokenizer, load_pretrained
from tasks.encoder.spec import HeadSpec
from tasks.stages.labeling.score.table import ROWS

CLASSES = HeadSpec("classification", 2, pooling="mean", max_length=32, label_names=("no", "yes"))
SETS = HeadSpec("multilabel", 2, pooling="mean", max_length=32, label_names=("acting", "plot"))
SCORES = HeadSpec("regression", 1, pooling="mean", max_length=32, score_range=(0.0, 5.0))


def trained(folder: Path, encoder: Path, spec: HeadSpec = CLASSES) -> Path:
    """Write a model with a random head into a new folder, and return the folder."""
    folder.mkdir()
    torch.manual_seed(1)
    model = load_pretrained(encoder, spec)
    torch.nn.init.normal_(model.output_layer.weight, std=1.0)
    model.save(folder)
    copy_tokenizer(encoder, folder, model, spec.max_length)
    return folder


def rows_of(folder: Path) -> pa.Table:
    """The rows to score that `take_in` has written into a folder."""
    return pa.ipc.open_file(pa.memory_map(str(folder / ROWS))).read_all()
