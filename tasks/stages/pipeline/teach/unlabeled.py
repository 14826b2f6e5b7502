"""Unlabeled rows that look like training rows: chosen from a text, and tokenized for the student."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from itertools import compress, islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from include.experiment import Experiment
from include.fields.data import Preprocessing
from include.folders import user_path
from include.scratch import scratch_folder
from include.stages import BadInput
from include.text import is_blank
from tasks.assets import encoder_folder
from tasks.encoder import lexicon, tokens
from tasks.encoder.batching import TokenTable
from tasks.encoder.cleaning import clean_all
from tasks.encoder.windows import split
from tasks.sources.documents import documents, sentences

log = logging.getLogger(__name__)

#: The folder with the token ids of the rows.
UNLABELED = "unlabeled"
ROWS_IN_PART = 5000
_AT_ONCE = 1000  # texts, because the encodings of a long one take hundreds of times its memory
_USUAL = 0.99  # the share of the training rows that are no longer than a line that is a row as a whole


def write_unlabeled(experiment: Experiment, train: Path, folder: Path) -> None:
    """Write the token ids of unlabeled rows in parts to a folder in this one, where it appears when it is complete."""
    file, options = user_path(experiment.distillation.text), experiment.distillation
    longest = usual_length(TokenTable.open(train))
    rules = experiment.preprocessing.clean
    count = sum(1 for _ in rows_of(file, longest, rules))
    if not count:
        raise BadInput(f"{file} contains no text: write one text per line, or remove distillation.text")
    chosen = np.arange(count)
    if 0 < options.max_rows < count:
        chosen = np.random.default_rng(0).choice(count, options.max_rows, replace=False)
    log.info("%s: %d of %d rows; lines of more than %d characters are divided", file, len(chosen), count, longest)
    encoder = encoder_folder(experiment.model.name, experiment.runtime)
    with scratch_folder(folder, "lexicon") as terms, scratch_folder(folder, UNLABELED) as scratch:
        tokenizer = lexicon.write_tokenizer(encoder, experiment.model.lexicon, terms)
        writer = _Writer(experiment.preprocessing, tokenizer, train)
        texts = compress(rows_of(file, longest, rules), np.isin(np.arange(count), chosen))
        for number, part in enumerate(_pieces(texts, ROWS_IN_PART)):
            writer.write(part, number * ROWS_IN_PART, scratch / f"part-{number:05d}.arrow")
        scratch.rename(folder / UNLABELED)


def usual_length(train: TokenTable) -> int:
    """Return how many characters nearly all training rows have at most."""
    lengths = np.concatenate([
        [sum(map(len, texts)) for texts in train.sentences(some)]
        for some in np.array_split(train.documents, 1 + len(train.documents) // _AT_ONCE)
    ])  # fmt: skip
    return int(np.quantile(lengths, _USUAL))


def rows_of(file: Path, longest: int, rules: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines of a file, those of more characters in sentences, after cleaning. Empty rows are left out."""
    for line in documents(file):
        pieces = [line] if len(line) <= longest else sentences(line)
        yield from (text for text in clean_all(pieces, rules) if not is_blank(text))


def _pieces(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(texts)
    while piece := list(islice(rest, size)):
        yield piece


class _Writer:
    """Writes rows without labels in the format of the training rows."""

    def __init__(self, options: Preprocessing, tokenizer: Path, train: Path) -> None:
        self._stride = options.window_stride
        self._tokenizer = tokens.open_tokenizer(tokenizer, options.max_length, self._stride)
        self._schema = pa.ipc.open_file(pa.memory_map(str(min(train.glob("part-*.arrow"))))).schema

    def write(self, texts: list[str], first: int, file: Path) -> None:
        """Write texts with numbers from `first` on, which are made negative: no labeled row has such a number."""
        with pa.ipc.new_file(str(file), self._schema) as writer:
            for number, some in enumerate(_pieces(texts, _AT_ONCE)):
                encodings = tokens.encode(self._tokenizer, [some])
                windows, documents = split(encodings, self._stride)
                made = tokens.token_columns(windows, False, self._schema.field("input_ids").type.value_type)
                columns = {
                    "row": pa.array(-1 - (first + number * _AT_ONCE + documents)),
                    "label": pa.nulls(len(windows), self._schema.field("label").type),
                    **made,
                    "sentence1": tokens.in_first_windows(some, documents),
                }
                writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=self._schema))
