"""Augmentation on Spark: copies of the training rows, each changed by one of the paper's methods.

A copy's row number is its source's plus COPY times its method's place in METHODS from 1 on, so `row` stays unique,
row % COPY is the source and row // COPY the method. What a copy becomes depends on the seed and that number only,
never on how Spark has partitioned the rows. Texts are changed after cleaning, which would take a mask for punctuation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tokenizers import Tokenizer

from include.experiment import Experiment
from include.sections import Augmentation
from include.stages import BadInput
from tasks.assets import wordnet_folder
from tasks.stages.preprocess.synonyms import Synonyms, read_synonyms
from tasks.stages.preprocess.words import mask_words, replace_words, shuffle_words

METHODS: tuple[Augmentation, ...] = ("synonyms", "masking", "order")  # a new one goes last
COPY = 2**40
#: What may hide a word: the first of these that is a special token of the tokenizer.
MASKS = ("[MASK]", "<mask>", "[UNK]", "<unk>")


def add_copies(rows: DataFrame, methods: Collection[Augmentation]) -> DataFrame:
    """The rows, and for each method a copy of each that AugmentPartition is to change."""
    shifts = [0, *(COPY * place for place, method in enumerate(METHODS, 1) if method in methods)]
    copies = rows.withColumn("shift", F.explode(F.array(*map(F.lit, shifts))))
    return copies.withColumn("row", F.col("row") + F.col("shift")).drop("shift")


@dataclass(frozen=True)
class AugmentPartition:
    """Changes the text of a partition's copies; callable as DataFrame.mapInArrow wants it.

    Attributes:
        seed: of all copies.
        mask: the token that hides a word.
        synonyms: the table, sent to each executor once; empty when the method is not asked for.
    """

    seed: int
    mask: str
    synonyms: Broadcast[Synonyms]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, with other sentences in rows that are copies."""
        for batch in batches:
            rows = batch.column("row").to_pylist()
            for place, name in enumerate(batch.schema.names):
                if name in ("sentence1", "sentence2"):
                    pairs = zip(rows, batch.column(name).to_pylist(), strict=True)
                    texts = [self._changed(text, row, name) for row, text in pairs]
                    batch = batch.set_column(place, batch.schema.field(place), pa.array(texts, pa.string()))
            yield batch

    def _changed(self, text: str, row: int, sentence: str) -> str:
        if row < COPY:
            return text
        random = Random(f"{self.seed} {row} {sentence}")
        match METHODS[row // COPY - 1]:
            case "synonyms":
                return replace_words(text, self.synonyms.value, random)
            case "masking":
                return mask_words(text, self.mask, random)
            case "order":
                return shuffle_words(text, random)


def augmentation(spark: SparkSession, experiment: Experiment, tokenizer: Path) -> AugmentPartition:
    """What the experiment asks for. Raises BadInput when it needs a mask or WordNet and there is none."""
    options = experiment.preprocessing
    mask = mask_token(tokenizer) if "masking" in options.augment else ""
    wanted = "synonyms" in options.augment
    table = read_synonyms(wordnet_folder(experiment.runtime.download)) if wanted else {}
    return AugmentPartition(options.seed, mask, spark.sparkContext.broadcast(table))


def mask_token(tokenizer: Path) -> str:
    """The special token of a tokenizer.json that hides a word, which the tokenizer then finds in any text."""
    tokens = Tokenizer.from_file(str(tokenizer)).get_added_tokens_decoder().values()
    special = {token.content for token in tokens if token.special}
    for mask in MASKS:
        if mask in special:
            return mask
    raise BadInput(
        f"{tokenizer} has none of the special tokens {', '.join(MASKS)}, so preprocessing.augment: [masking] cannot be "
        "used with it: leave masking out"
    )
