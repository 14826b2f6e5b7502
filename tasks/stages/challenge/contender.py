"""The two models: the new one as evaluate scored it, and the champion, scored here on the same dev rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from include.artifacts import ArtifactStore
from include.glue import Task
from include.stages import BadInput
from tasks.encoder import tokens
from tasks.encoder.batching import TokenTable
from tasks.encoder.inference import predict_logits
from tasks.encoder.models import Classifier, load_trained
from tasks.encoder.spec import HeadSpec
from tasks.scoring.metrics import Array
from tasks.scoring.scored import Scored


@dataclass(frozen=True)
class Contender:
    """A model, and what it says of the dev rows.

    Attributes:
        folder: of the model's files.
        classifier: the model itself.
        table: the dev rows in its own tokens.
        scored: its logits for them.
    """

    folder: Path
    classifier: Classifier
    table: TokenTable
    scored: Scored


def newcomer(task: Task, dev: TokenTable, folder: Path, predictions: Path) -> Contender:
    """The new model, with what evaluate's predictions.parquet says. Raises BadInput when that is of other rows."""
    found = pq.read_table(predictions).sort_by("row")
    order = np.argsort(dev.rows, kind="stable")
    if not np.array_equal(found["row"].to_numpy(), dev.rows[order]):
        raise BadInput(f"{predictions} does not hold the rows of {dev.folder}: run the stages from evaluate on again")
    logits = np.empty((len(dev), task.outputs))
    logits[order] = _logits(task, found)
    return Contender(folder, load_trained(folder), dev, _scored(task, dev, logits))


def titleholder(task: Task, dev: TokenTable, champion: Mapping[str, str], store: ArtifactStore) -> Contender:
    """The champion as champion.json names it, on the dev rows as this run cleaned them.

    Raises BadInput when its files are missing or damaged, or it is of another task.
    """
    name, folder = f"the champion, version {champion['version']} of {champion['model']}", Path(champion["folder"])
    try:
        store.find("train", champion["train"])  # raises BadInput when a file is not as it was written
        classifier = load_trained(folder)
        _check_task(task, classifier.spec)
        table = retokenise(dev, folder / "tokenizer.json", classifier.spec.max_length)
        if table.largest_id() >= classifier.encoder.config.vocab_size:
            raise BadInput(f"{folder / 'tokenizer.json'} belongs to another encoder")
        logits = predict_logits(classifier, table)
        if not np.isfinite(logits).all():
            raise BadInput(f"the logits of {folder} are not finite")
    except BadInput as error:
        remedy = "restore its files, roll back to the version before it, or take the champion's place away from it"
        raise BadInput(f"{name} cannot be compared with: {error}. What can be done: {remedy}") from error
    return Contender(folder, classifier, table, _scored(task, dev, logits))


def retokenise(table: TokenTable, tokenizer: Path, max_length: int) -> TokenTable:
    """The same rows in the tokens of another tokenizer. Raises BadInput when its file is damaged."""
    sentences = [list(column) for column in zip(*table.sentences(np.arange(len(table))), strict=True)]
    try:
        other = tokens.open_tokenizer(tokenizer, max_length)
    except Exception as error:  # tokenizers raises nothing narrower
        raise BadInput(f"{tokenizer} is not a tokenizer: {error}") from error
    made = tokens.token_columns(tokens.encode(other, sentences), len(sentences) == 2, tokens.id_type(other))
    texts = {f"sentence{number}": column for number, column in enumerate(sentences, 1)}
    return TokenTable(table.folder, pa.table({"row": table.rows, "label": table.labels, **made, **texts}))


def _logits(task: Task, predictions: pa.Table) -> Array:
    """Scores as they are; of probabilities the logarithm, which differs from the logits by a constant a row."""
    if task.kind == "regression":
        scores: Array = predictions["prediction"].to_numpy()[:, None]
        return scores
    probabilities = np.array(predictions["probabilities"].to_pylist())
    logits: Array = np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    return logits


def _scored(task: Task, dev: TokenTable, logits: Array) -> Scored:
    return Scored(task, dev.rows, dev.labels, logits, dev.sentences(np.arange(len(dev))))


def _check_task(task: Task, spec: HeadSpec) -> None:
    if _head(spec) != _head(task):
        raise BadInput(f"it is of another task: its head is {_head(spec)}, but {task.name} is {_head(task)}")


def _head(of: Task | HeadSpec) -> str:
    """What has to be the same of two heads that do the same task."""
    if of.score_range is None:
        return f"a {of.kind} of {of.outputs} classes ({', '.join(of.label_names)})"
    low, high = of.score_range
    return f"a {of.kind} of {low:g} to {high:g}"
