"""A model from the folder of a package, in one of the package's forms. It is MLflow's python_function of the package.

This file, packaged_backends.py and some modules of tasks/encoder and tasks/scoring are saved with every package, in the
same folders, so they import nothing else of the project, and one another by relative names. They need numpy, pandas and
tokenizers, and the library of the form: onnxruntime, openvino, or torch and transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding, Tokenizer

from ..encoder.cleaning import clean_all  # noqa: TID252 - the copies keep their folders
from ..encoder.windows import pool, split  # noqa: TID252
from ..scoring.risk import Guard  # noqa: TID252
from .packaged_backends import MODEL, TransformersBackend, backend_of, file_of

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]
#: The description of a package.
DESCRIPTION = "package.json"
_ROWS = 32  # per batch
#: Loads a model in PyTorch from its folder, and returns a backend.
OpenTorch = Callable[[Path], Any]
#: Of a text of more characters per token of the maximum length, the beginning is tokenized first: it mostly suffices.
_CHARACTERS = 16


class PackagedModel:
    """A model that labels text, in a form that package.json offers; "" for the one that it names as served.

    Calls from as many threads as there are streams compute at the same time. The threads are those of each call in
    onnxruntime or OpenVINO, 0 for their choice. `torch` loads the form of PyTorch. `guard` says what it may answer;
    None: everything.
    """

    def __init__(
        self, folder: Path, form: str = "", threads: int = 0, torch: OpenTorch | None = None, streams: int = 1
    ) -> None:
        self.guard: Guard | None = None
        described = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        self.columns: list[str] = described["columns"]
        self.kind: str = described["kind"]
        self.labels: list[str] = described["labels"]
        self.thresholds: list[float] = described["thresholds"]
        self.outputs = max(1, len(self.labels))
        self.score_range: list[float] | None = described.get("score_range")
        self.max_length: int = described["max_length"]
        self.cleaning: list[str] = described.get("cleaning", [])
        self.backend = _open_form(folder, described, form, threads, torch or TransformersBackend, streams)
        self.stride: int | None = described.get("stride")  # None: long texts are truncated
        said = (folder / MODEL / "tokenizer.json").read_text(encoding="utf-8")
        self._tokenizer = _open_tokenizer(said, self.max_length, self.stride or 0)

    def predict(self, data: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Label texts in the columns `sentence` and, for pairs, `sentence2`. Return the columns of `answers`."""
        import pandas as pd  # the service has none

        return pd.DataFrame(self.answers(self.logits([_texts(data, name) for name in self.columns])), index=data.index)

    def answers(self, logits: Array) -> dict[str, list[Any]]:
        """Turn logits or scores, [rows, outputs], into lists with a value for each row.

        These are `label` or, for a multi-label task, the list `labels`, and `probabilities`, float64 [labels], in the
        order of package.json; or `score`. With a guard its columns follow, and `label` is None where it abstains.
        """
        found: dict[str, list[Any]]
        if self.kind == "regression":
            values = logits[:, 0].astype(np.float64)
            found = {"score": values.tolist()}
        else:
            values = self.probabilities(logits)
            found = {**self._labels(values), "probabilities": list(values)}
        added = self.guard.columns(values) if self.guard else {}
        if "abstained" in added:
            answers = zip(found["label"], added["abstained"], strict=True)
            found["label"] = [None if reason else label for label, reason in answers]
        return found | added

    def _labels(self, chances: Array) -> dict[str, list[Any]]:
        if self.kind == "multilabel":
            return {"labels": [[self.labels[at] for at in np.flatnonzero(row >= self.thresholds)] for row in chances]}
        return {"label": [self.labels[number] for number in chances.argmax(1)]}

    def probabilities(self, logits: Array) -> Array:
        """Turn logits into the probabilities of all labels, float64 [rows, labels]."""
        logits = logits.astype(np.float64)
        if self.kind == "multilabel":
            independent: Array = 1 / (1 + np.exp(-logits))
            return independent
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        chances: Array = exponentials / exponentials.sum(1, keepdims=True)
        return chances

    def logits(self, texts: Sequence[list[str]]) -> Array:
        """Compute the logits, or scores, of one list of sentences or two of equal length, float32 [rows, outputs]."""
        encodings, texts_of = self.encode(texts)
        logits = np.zeros((len(encodings), self.outputs), np.float32)
        order = sorted(range(len(encodings)), key=lambda place: len(encodings[place]))
        for start in range(0, len(order), _ROWS):
            places = order[start : start + _ROWS]
            logits[places] = self.compute([encodings[place] for place in places])
        return pool(logits, texts_of)

    def encode(self, texts: Sequence[list[str]]) -> tuple[list[Encoding], Array]:
        """Clean and tokenize texts. Return the inputs, or windows of long texts, and the text's position of each."""
        columns = [clean_all(column, self.cleaning) for column in texts]
        if len(columns) == 1 and self.stride is None:
            return split(self._truncated(columns[0]), None)
        rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        return split(self._tokenizer.encode_batch(rows), self.stride)

    def _truncated(self, texts: list[str]) -> list[Encoding]:
        """Tokenize texts of which long ones are truncated, without reading these to their ends if possible."""
        longest = _CHARACTERS * self.max_length
        encodings = self._tokenizer.encode_batch([text[:longest] for text in texts])
        for place, (text, encoding) in enumerate(zip(texts, encodings, strict=True)):
            # With two more windows, the word that may be cut is more than a window away from what is kept.
            if len(text) > longest and len(encoding.overflowing) < 2:
                encodings[place] = self._tokenizer.encode(text)
        return encodings

    def compute(self, encodings: Sequence[Encoding]) -> Array:
        """Compute the logits of inputs as one batch, float32 [inputs, outputs]."""
        logits: Array = self.backend.logits(*padded(encodings))
        return logits


def padded(encodings: Sequence[Encoding]) -> tuple[Array, Array, Array]:
    """Return the ids, the attention mask and the segments of inputs as one batch, int64 [inputs, longest]."""
    shape = len(encodings), max(map(len, encodings))
    ids, mask, segments = (np.zeros(shape, np.int64) for _ in range(3))
    for row, encoding in enumerate(encodings):
        length = len(encoding)
        ids[row, :length], mask[row, :length], segments[row, :length] = encoding.ids, 1, encoding.type_ids
    return ids, mask, segments


@lru_cache(maxsize=2)  # reading one keeps all Python threads of a service waiting that changes its model
def _open_tokenizer(said: str, max_length: int, stride: int) -> Tokenizer:
    tokenizer = Tokenizer.from_str(said)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length, stride=stride, strategy="longest_first")
    return tokenizer


def _open_form(
    folder: Path, described: Mapping[str, Any], form: str, threads: int, torch: OpenTorch, streams: int
) -> Any:
    """Load one form of a package, the served one if it is not named. Return a Backend (tasks/inference/runner.py)."""
    offered = {each["name"]: each for each in described["forms"] if each["offered"]}
    name = form or described["served"]
    if name not in offered:
        raise ValueError(f"{folder} does not offer the form {name!r}: choose one of {', '.join(offered)}")
    chosen = offered[name]
    file, engine = file_of(folder, chosen), chosen["engine"]
    if engine == "torch":
        return torch(file)
    return backend_of(file, engine, chosen["precision"], described["max_length"], threads, streams)


def _load_pyfunc(path: str, model_config: Mapping[str, Any] | None = None) -> PackagedModel:
    """Load a package for MLflow, which finds this function by its name.

    `model_config` may choose another form, and a `max_risk` that the model must keep below.
    """
    wanted, folder = model_config or {}, Path(path)
    model = PackagedModel(folder, wanted.get("form", ""))
    if max_risk := wanted.get("max_risk"):
        served = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))["served"]
        try:
            model.guard = Guard.read(folder, wanted.get("form") or served, float(max_risk))
        except (FileNotFoundError, KeyError) as error:
            raise ValueError(f"{folder} has no evidence for max_risk: package the model again, or remove it") from error
    return model


def _texts(data: pd.DataFrame, name: str) -> list[str]:
    if name not in data:
        raise ValueError(f"the column {name} is missing: the columns are {', '.join(map(str, data.columns))}")
    texts: list[str] = data[name].tolist()
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"row {row} of the column {name} is not a text: {text!r}")
    return texts
