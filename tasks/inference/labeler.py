"""Label rows: what predict, score and stream share. Each of them adds the source and the sink of the rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from include.answers import ABSTAINED, EXPLANATION, LABEL, LABEL_SET, MODEL_VERSION, PREDICTION, ROW
from include.fields.results import Prediction
from include.text import is_blank
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.cleaning import clean
from tasks.encoder.spec import HeadSpec
from tasks.inference.chosen_form import log_guard
from tasks.inference.explanation import explanations
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TrainedModel
from tasks.scoring.predictions import answer_columns, predict, probabilities
from tasks.scoring.risk import Guard
from tasks.sources.text_files import decoding_problem, nul_problem
from tasks.staging import Staging, fetched

#: The types of columns that may have no values.
_TYPES = {ABSTAINED: pa.string(), LABEL_SET: pa.list_(pa.string())}


@dataclass(frozen=True)
class Labeler:
    """Labels rows. It can be sent to the Python workers of Spark, of which each loads the model once."""

    model: TrainedModel
    address: str  # of the model's root
    head: HeadSpec
    prediction: Prediction
    version: str = ""  # of the model, for the column MODEL_VERSION; "" for no such column
    explain: bool = False  # whether to add the column EXPLANATION
    guard: Guard | None = None  # what it may answer; None: everything

    @classmethod
    def of(
        cls,
        staged: Staging,
        model: TrainedModel,
        prediction: Prediction,
        version: str = "",
        explain: bool = False,
    ) -> Self:
        """Share a model with the workers."""
        address = staged.share(model.root, model.files())
        guard = model.guard(prediction)
        log_guard(guard, version or model.form)
        return cls(model, address, model.head(), prediction, version, explain, guard)

    def label(self, batches: Iterable[pa.RecordBatch], texts: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows with their answers, some thousand at a time. The columns `texts` have one text, or a pair."""
        rows: list[pa.RecordBatch] = []  # those that have been read and not been answered

        def read() -> Iterator[tuple[str, ...]]:
            for batch in batches:
                rows.append(batch)
                yield from zip(*(batch.column(name).to_pylist() for name in texts), strict=True)

        for logits in self._runner.logits(read()):
            table = pa.Table.from_batches(rows)
            rows[:] = table.slice(len(logits)).to_batches()
            answered = self._answered(table.slice(0, len(logits)), logits)
            yield self._explained(answered, texts, logits) if self.explain else answered

    def logits(self, texts: Iterable[Sequence[str]]) -> Iterator[Array]:
        """Yield the logits of texts, or of pairs, some thousand at a time, float32 [texts, outputs]."""
        return self._runner.logits(texts)

    def label_tokens(self, table: TokenTable) -> pa.Table:
        """Return the column `row` and the answers of all tokenized documents."""
        logits = self._runner.documents(table, np.arange(len(table.documents)))
        return self._answered(pa.table({ROW: table.rows[table.documents]}), logits)

    @property
    def _runner(self) -> Runner:
        return _runner(self.model, self.address, self.prediction, self.head)

    def _answered(self, rows: pa.Table, logits: Array) -> pa.Table:
        columns = answers(self.head, logits, self.guard)
        if self.version:
            columns[MODEL_VERSION] = pa.repeat(self.version, len(rows))
        for name, column in columns.items():  # the others keep what is noted of their types
            rows = rows.append_column(name, pa.array(column))
        return rows

    def _explained(self, rows: pa.Table, texts: Sequence[str], logits: Array) -> pa.Table:
        """Return the rows with a column of JSON: see `explain` in tasks/inference/explanation.py."""

        def answer(some: Iterable[Sequence[str]]) -> Iterator[Array]:
            return (values(self.head, each) for each in self._runner.logits(some))

        given = list(zip(*(rows[name].to_pylist() for name in texts), strict=True))
        found = explanations(self.head, self.head.label_names, given, values(self.head, logits), answer)
        return rows.append_column(EXPLANATION, pa.array([json.dumps(each, ensure_ascii=False) for each in found]))


def values(head: HeadSpec, logits: Array) -> Array:
    """Return the probabilities of all labels, or the scores, float64 [n, outputs], for logits of the same shape."""
    return logits.astype(np.float64) if head.kind == "regression" else probabilities(head.kind, logits)


def answers(head: HeadSpec, logits: Array, guard: Guard | None = None) -> dict[str, Array | pa.Array]:
    """Return the columns of answers for logits, [n, outputs]. Where a guard abstains, prediction and label are null."""
    predicted, chances = predict(head.kind, logits, head.thresholds)
    columns = answer_columns(head.kind, head.label_names, predicted, chances)
    if guard is None:
        return columns
    added = guard.columns(predicted if chances is None else chances)
    if ABSTAINED in added:
        is_answered = pa.array([reason is None for reason in added[ABSTAINED]])
        for name in (PREDICTION, LABEL):
            columns[name] = pc.if_else(is_answered, pa.array(columns[name]), None)
    return {**columns, **{name: pa.array(column, _TYPES.get(name)) for name, column in added.items()}}


@lru_cache(maxsize=1)  # a worker works on several pieces
def _runner(model: TrainedModel, address: str, prediction: Prediction, head: HeadSpec) -> Runner:
    here = model.at(fetched(address))
    return Runner(Path(here.folder), here.open(threads=1, longest=head.max_length), prediction, head)


def text_problem(value: bytes | None, rules: Sequence[str]) -> str:
    """Return why a text, or None, cannot be labeled by a model that cleans texts by these rules; "" if it can."""
    if value is None:
        return "no text"
    if problem := decoding_problem(value):
        return problem
    text = value.decode("utf-8")
    if is_blank(text):
        return "empty text"
    return "empty text after cleaning" if rules and is_blank(clean(text, rules)) else nul_problem(text)
