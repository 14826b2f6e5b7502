"""Models whose head alone is trained, and the vectors that their encoders compute for texts."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import nn

from tasks.encoder.batching import Array, TokenTable, length_batches
from tasks.encoder.loading import load_pretrained
from tasks.encoder.models import Classifier, predict_logits
from tasks.encoder.tfidf import TfidfConfig, TfidfForSequenceClassification, TfidfModel
from tasks.encoder.tokens import open_tokenizer
from tasks.encoder.windows import first_windows
from tasks.training.device import rank_device
from tasks.training.job import Job
from tasks.training.sampler import check

_BATCH_TOKENS = 8192


def frozen(job: Job, train: TokenTable) -> tuple[Classifier, csr_matrix]:
    """Return an encoder with a linear head on its pooled output, by default the mean, and this output for all rows."""
    pooling = "mean" if job.head.pooling == "native" else job.head.pooling
    classifier = load_pretrained(job.encoder, replace(job.head, pooling=pooling)).eval().to(rank_device())
    check(train, classifier)
    model, size = classifier.model, classifier.output_layer.in_features
    head, model.classifier = model.classifier, nn.Identity()  # the logits of a head that changes nothing
    vectors = predict_logits(Classifier(model, replace(classifier.spec, outputs=size, score_range=None)), train)
    model.classifier = head
    return classifier, csr_matrix(vectors)


def tfidf(job: Job, train: TokenTable) -> tuple[Classifier, csr_matrix]:
    """Return a linear model on TF-IDF, with the document frequencies of MLlib's IDF, and the vectors of all rows."""
    words = open_tokenizer(job.encoder / "tokenizer.json", job.head.max_length).get_vocab_size()
    config = TfidfConfig(vocab_size=words, type_vocab_size=job.head.texts or 1, **job.head.config())
    classifier = Classifier(TfidfForSequenceClassification(config), job.head).eval()
    check(train, classifier)
    encoder = cast(TfidfModel, classifier.encoder)
    counts = pool_sparse(sparse(train, encoder, counted=True), train.rows)
    documents = np.asarray((counts > 0).sum(0)).ravel()
    idf = np.log((counts.shape[0] + 1) / (documents + 1)) * (documents > 0)
    encoder.idf.data = torch.from_numpy(idf[: len(encoder.idf)]).float()
    return classifier, pool_sparse(sparse(train, encoder, counted=False), train.rows)


@torch.inference_mode()
def sparse(table: TokenTable, encoder: TfidfModel, counted: bool) -> csr_matrix:
    """Return how often each feature occurs in the rows of a table, or the rows' vectors, [rows, features]."""
    rows, features, values = [], [], []
    for indices in length_batches(table.lengths, batch_tokens=_BATCH_TOKENS):
        ids, mask, segments = map(torch.from_numpy, table.padded(indices))
        found, value = encoder.ngrams(ids, mask) if counted else encoder(ids, mask, segments)
        rows.append(np.repeat(indices, found.shape[1]))
        features.append(found.numpy().ravel())
        values.append(value.numpy().ravel())
    every = (np.concatenate(rows), np.concatenate(features))
    matrix = csr_matrix((np.concatenate(values), every), (len(table), encoder.config.hidden_size))  # sums duplicates
    matrix.eliminate_zeros()
    return matrix


def pool_sparse(vectors: csr_matrix, rows: Array) -> csr_matrix:
    """Return the mean of the vectors of each document's windows, [documents, features]: see tasks/encoder/windows."""
    first = first_windows(rows)
    if len(first) == len(rows):
        return vectors
    counts = np.diff(first, append=len(rows))
    parts = (np.repeat(1 / counts, counts), np.arange(len(rows)), np.append(first, len(rows)))
    return csr_matrix(csr_matrix(parts, (len(first), len(rows))) @ vectors)
