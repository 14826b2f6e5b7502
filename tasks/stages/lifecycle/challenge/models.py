"""The two models: the challenger with evaluate's predictions, and the champion, which predicts the same dev rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from include.artifacts import ArtifactStore
from include.glue import Task
from include.stages import BadInput
from tasks.context import Context
from tasks.encoder import tokens
from tasks.encoder.batching import TokenTable
from tasks.encoder.cleaning import clean_all
from tasks.encoder.labels import to_column
from tasks.encoder.loading import load_trained
from tasks.encoder.models import predict_logits
from tasks.encoder.spec import check_task
from tasks.encoder.windows import split
from tasks.inference.chosen_form import choose
from tasks.inference.runner import Backend
from tasks.inference.trained_model import TorchBackend, TrainedModel
from tasks.scoring.predictions import Array
from tasks.scoring.scored import ScoredSplit


@dataclass(frozen=True)
class ScoredModel:
    """A model's folder, its served form on one thread, and the dev rows as it tokenizes them and with its logits."""

    folder: Path
    served: Backend
    table: TokenTable
    scored: ScoredSplit


def load_models(context: Context, champion: Mapping[str, str]) -> dict[str, ScoredModel]:
    """Load the challenger as "model" and, if champion.json names one, the champion as "champion"."""
    task, inputs = context.experiment.task, context.inputs
    dev = TokenTable.open(inputs["preprocess"].path / "dev")
    predictions = inputs["evaluate"].path / "predictions.parquet"
    models = {"model": load_challenger(task, dev, inputs["train"].path / "model", inputs["package"].path, predictions)}
    if champion["version"]:
        validated = inputs["validate"].path / "dev.parquet"
        models["champion"] = load_champion(task, dev, validated, champion, context.run.store)
    return models


def load_challenger(task: Task, dev: TokenTable, folder: Path, package: Path, predictions: Path) -> ScoredModel:
    """Load the challenger, with the tokenized dev rows and the predictions of evaluate."""
    found = pq.read_table(predictions).sort_by("row")
    rows = dev.rows[dev.documents]
    order = np.argsort(rows, kind="stable")
    if not np.array_equal(found["row"].to_numpy(), rows[order]):
        raise BadInput(
            f"{predictions} does not contain the rows of {dev.folder}: run evaluate and all later stages again"
        )
    logits = np.empty((len(rows), task.outputs))
    logits[order] = _logits(task, found)
    temperatures = np.ones(len(rows))
    if "temperature" in found.column_names:  # not for scores, and not from an older revision
        temperatures[order] = found["temperature"].to_numpy()
    return ScoredModel(folder, _served(package), dev, _scored(task, dev, logits, temperatures))


def load_champion(
    task: Task, dev: TokenTable, validated: Path, champion: Mapping[str, str], store: ArtifactStore
) -> ScoredModel:
    """Load the champion, and predict the dev rows. The raw texts in `validated` are cleaned as in its training."""
    name, folder = f"the champion, version {champion['version']} of {champion['model']}", Path(champion["folder"])
    try:
        store.find("train", champion["train"], hashed=True)  # raises BadInput if a file is damaged
        classifier = load_trained(folder)
        spec = classifier.spec
        check_task(task, spec)
        sentences = [clean_all(column, spec.cleaning) for column in _sentences(validated, dev, task)]
        table = retokenize(dev, sentences, folder / "tokenizer.json", spec.max_length, spec.stride)
        if table.largest_id() >= classifier.encoder.config.vocab_size:
            raise BadInput(f"{folder / 'tokenizer.json'} belongs to another encoder")
        logits = predict_logits(classifier, table)
        package = store.find("package", champion.get("package") or "none", hashed=True)
        if not np.isfinite(logits).all():
            raise BadInput(f"the logits of {folder} are not finite")
        served = TorchBackend(classifier, threads=1) if package is None else _served(package.path)
    except BadInput as error:
        remedy = "restore its files, roll back to the previous version, or delete the champion alias in MLflow"
        raise BadInput(f"{name} cannot be used for the comparison: {error}. Remedy: {remedy}") from error
    return ScoredModel(folder, served, table, _scored(task, dev, logits, spec.temperature))


def _served(package: Path) -> Backend:
    """Load the form of a package that the service would choose on this machine, for one thread."""
    return TrainedModel.in_form(package, choose(package, "serving")).open(threads=1)


def _sentences(validated: Path, dev: TokenTable, task: Task) -> list[list[str]]:
    """Read the columns of sentences of the documents of `dev`, in their order."""
    found = pq.read_table(validated)
    order = pc.index_in(pa.array(dev.rows[dev.documents]), found["row"])
    if order.null_count:
        raise BadInput(
            f"{validated} does not contain the rows of {dev.folder}: run preprocess and all later stages again"
        )
    return [column.to_pylist() for column in found.select(list(task.sentence_columns)).take(order).columns]


def retokenize(
    table: TokenTable, sentences: Sequence[list[str]], tokenizer: Path, max_length: int, stride: int | None = None
) -> TokenTable:
    """Tokenize the documents of a table, whose columns of sentences are given, with the tokenizer of another model."""
    try:
        other = tokens.open_tokenizer(tokenizer, max_length, stride)
    except Exception as error:  # tokenizers raises no narrower type
        raise BadInput(f"{tokenizer} is not a valid tokenizer: {error}") from error
    windows, documents = split(tokens.encode(other, list(sentences)), stride)
    made = tokens.token_columns(windows, len(sentences) == 2, tokens.id_type(other))
    texts = {f"sentence{at}": tokens.in_first_windows(column, documents) for at, column in enumerate(sentences, 1)}
    first = table.documents[documents]
    columns = {"row": table.rows[first], "label": to_column(table.labels[first]), **made, **texts}
    return TokenTable(table.folder, pa.table(columns))


def _logits(task: Task, predictions: pa.Table) -> Array:
    """Return scores unchanged, and probabilities as logits, which for classes differ by a constant per row."""
    if task.kind == "regression":
        scores: Array = predictions["prediction"].to_numpy()[:, None]
        return scores
    probabilities = np.array(predictions["probabilities"].to_pylist())
    least = np.finfo(np.float64).tiny
    logits: Array = np.log(np.maximum(probabilities, least))
    return logits - np.log(np.maximum(1 - probabilities, least)) if task.kind == "multilabel" else logits


def _scored(task: Task, dev: TokenTable, logits: Array, temperatures: Array | float) -> ScoredSplit:
    """Return the scored rows. Temperature and thresholds are fitted anew, to these rows for both models."""
    return ScoredSplit.of(task, dev, logits, temperatures).cross_fitted()
