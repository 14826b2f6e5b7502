"""A TextCNN that begins with word vectors of the training rows, which MLlib's Word2Vec learns."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyspark.ml.feature import Word2Vec
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from include.stages import BadInput
from tasks.baselines.rows import OnePartition
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.loading import copy_tokenizer
from tasks.encoder.models import EncoderWithHead
from tasks.encoder.text_cnn import TextCNNConfig, TextCNNModel
from tasks.encoder.tokens import open_tokenizer
from tasks.training.job import Job

#: Tokens that are rarer have no vector of their own to begin with. Everything else is MLlib's default.
_LEAST = 2


def write_text_cnn(job: Job, folder: Path) -> Job:
    """Write the encoder that the training begins with, and return the training that begins with it.

    Everything that word2vec does not learn is drawn from training.seed: the filters, and the vectors of rare tokens,
    which have the variance of the others, as Kim recommends.
    """
    words = open_tokenizer(job.encoder / "tokenizer.json", job.head.max_length).get_vocab_size()
    torch.manual_seed(job.training.seed)
    model = TextCNNModel(TextCNNConfig(vocab_size=words))
    with OnePartition.of(job.experiment, folder) as to_spark:
        started = time.monotonic()
        ids, vectors = learn(to_spark, TokenTable.open(job.data / "train"), job.training.seed)
        seconds = time.monotonic() - started
    with torch.no_grad():
        table = model.embeddings.weight.normal_(std=float(vectors.std()))
        table[torch.from_numpy(ids)] = torch.from_numpy(vectors)
    model.save_pretrained(folder)
    copy_tokenizer(job.encoder, folder, EncoderWithHead(model), job.head.max_length)
    return replace(job, encoder=folder, spent=seconds)


def learn(to_spark: OnePartition, table: TokenTable, seed: int) -> tuple[Array, Array]:
    """Learn vectors of a table's tokens: ids, int64 [tokens], ascending, and float32 [tokens, embedding_size]."""
    rows = [table.ids(row) for row in range(len(table))]
    if not rows or np.bincount(np.concatenate(rows)).max() < _LEAST:
        raise BadInput(f"{table.folder}: no token occurs twice, so there are no word vectors to learn: add rows")
    tokens = pa.array([ids.astype(str).tolist() for ids in rows], pa.list_(pa.string()))
    texts = to_spark(pa.table({"tokens": tokens}), StructType([StructField("tokens", ArrayType(StringType()))]))
    size = TextCNNConfig().embedding_size
    word2vec = Word2Vec(vectorSize=size, minCount=_LEAST, seed=seed, inputCol="tokens")
    found = sorted((int(row.word), row.vector.toArray()) for row in word2vec.fit(texts).getVectors().collect())
    return np.array([token for token, _ in found]), np.array([vector for _, vector in found], np.float32)
