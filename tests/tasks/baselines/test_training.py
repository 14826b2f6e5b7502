"""The vectors of texts, and what a regression on them learns."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from pyspark.ml.classification import LogisticRegression as MLlibRegression
from pyspark.ml.linalg import SparseVector
from pyspark.sql import SparkSession
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from include.experiment import Experiment
from include.named_experiments import build
from include.stages import BadInput
from tasks.baselines.regression import fit
from tasks.baselines.rows import OnePartition
from tasks.baselines.training import train
from tasks.baselines.vectors import frozen, pool_sparse, sparse, tfidf
from tasks.baselines.word_vectors import write_text_cnn
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import load_pretrained, load_trained, read_head
from tasks.encoder.models import predict_logits
from tasks.encoder.tfidf import TfidfModel
from tasks.launching.launch import launch
from tasks.staging import Staging, below
from tasks.training.job import Job
from tests.tasks.encoder.samples import FILLER, label_sets, reviews, stories, tiny_encoder, tokenizer, write_split

LENGTH = 64


def experiment(kind: str, **data: Any) -> Experiment:
    own = {"task": "classification", "source": "files", "path": "x", "labels": ["bad", "good"], **data}
    return build({"data": own, "model": {"kind": kind}, "preprocessing": {"max_length": LENGTH}}, "the test's")


def job_of(folder: Path, experiment: Experiment, train: Any, dev: Any) -> Job:
    """A training of these rows, sentences and labels, whose output is the folder out."""
    write_split(folder / "data" / "train", *train)
    write_split(folder / "data" / "dev", *dev)
    (folder / "out").mkdir()
    return Job(experiment, encoder=tiny_encoder(folder / "encoder"), data=folder / "data", output=folder / "out")


def pairs(count: int, seed: int) -> tuple[list[tuple[str, str]], list[float]]:
    """Two texts of ten words each, and how many words they share, from 0 to 5."""
    random = np.random.default_rng(seed)
    shared = random.integers(0, 6, count)
    rows = []
    for number in shared:
        words = random.permutation(FILLER)
        both = list(words[:number])
        rows.append((" ".join([*both, *words[10 : 20 - number]]), " ".join([*both, *words[20 : 30 - number]])))
    return rows, shared.astype(float).tolist()


def test_tfidf_is_that_of_scikit_learn(tmp_path: Path) -> None:
    job = job_of(tmp_path, experiment("tfidf"), reviews(60, seed=1), reviews(20, seed=2))
    _, vectors = tfidf(job, TokenTable.open(tmp_path / "data" / "train"))
    texts = [tokenizer().encode(text).tokens for (text,) in reviews(60, seed=1)[0]]
    reference = TfidfVectorizer(analyzer=lambda text: [*text, *map(" ".join, pairwise(text))])
    expected = reference.fit_transform(texts)
    # scikit-learn adds 1 to MLlib's idf; without it, what all texts contain has no weight.
    expected = reference.set_params(norm=None).fit_transform(texts).multiply(1 - 1 / reference.idf_)
    products = (expected @ expected.T).toarray()
    lengths = np.sqrt(np.diag(products))
    assert (vectors @ vectors.T).toarray() == pytest.approx(products / np.outer(lengths, lengths), abs=1e-3)


def test_padding_and_the_order_of_other_rows_change_nothing(tmp_path: Path) -> None:
    job = job_of(tmp_path, experiment("tfidf"), reviews(60, seed=1), reviews(20, seed=2))
    classifier, _ = tfidf(job, TokenTable.open(tmp_path / "data" / "train"))
    ids = torch.tensor([[2, 4, 9, 9, 3]])
    padded = torch.tensor([[2, 4, 9, 9, 3, 0, 0], [2, 5, 8, 10, 11, 12, 3]])
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1] * 7])
    alone, beside = classifier(ids, torch.ones_like(ids)), classifier(padded, mask)
    torch.testing.assert_close(alone[0], beside[0])


def test_a_document_has_the_mean_of_its_windows(tmp_path: Path) -> None:
    vectors = tfidf_of_stories(tmp_path)
    table = TokenTable.open(tmp_path / "long")
    assert len(table) > len(table.documents)
    pooled = pool_sparse(vectors, table.rows)
    windows = table.windows(np.array([3]))
    assert pooled[3].toarray()[0] == pytest.approx(vectors[windows].toarray().mean(0))


def tfidf_of_stories(folder: Path) -> Any:
    """The vectors of the windows of long texts."""
    words = tokenizer()
    words.enable_truncation(16, stride=4)
    write_split(folder / "long", *stories(20), words=words, stride=4)
    job = job_of(folder, experiment("tfidf"), reviews(60, seed=1), reviews(20, seed=2))
    classifier, _ = tfidf(job, TokenTable.open(folder / "data" / "train"))
    return sparse(TokenTable.open(folder / "long"), cast(TfidfModel, classifier.encoder), counted=False)


def test_classes_are_those_of_scikit_learn(spark: SparkSession, tmp_path: Path) -> None:
    job = job_of(tmp_path, experiment("tfidf"), reviews(100, seed=1), reviews(40, seed=2))
    train(job)
    model, dev = load_trained(job.output / "model"), TokenTable.open(job.data / "dev")
    logits = predict_logits(model, dev)
    _, vectors = tfidf(job, TokenTable.open(job.data / "train"))
    reference = LogisticRegression(tol=1e-8).fit(vectors, reviews(100, seed=1)[1])
    weights = model.output_layer.weight.detach().numpy()
    assert weights[1] - weights[0] == pytest.approx(reference.coef_[0], abs=0.01)
    assert (logits.argmax(1) == dev.labels).mean() > 0.8
    shares = json.loads((job.output / "metrics.jsonl").read_text())["shares"]
    assert shares["good"] == pytest.approx(logits.argmax(1).mean(), abs=1e-4)


def test_scores_of_pairs_are_learned_from_what_they_share(spark: SparkSession, tmp_path: Path) -> None:
    wanted = experiment("tfidf", task="regression", labels=[], score_range=[0, 5])
    own = wanted.model_copy(update={"data": wanted.data.model_copy(update={"columns": {"sentence2": "other"}})})
    job = job_of(tmp_path, own, pairs(150, seed=1), pairs(50, seed=2))
    train(job)
    assert json.loads((job.output / "training.json").read_text())["best"] > 0.8
    head = read_head(job.output / "model")
    assert (head.kind, head.texts, head.score_range) == ("regression", 2, (0.0, 5.0))


def test_every_label_has_a_regression_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    wanted = experiment("tfidf", task="multi-label", labels=["a", "b", "c"])
    train(job_of(tmp_path, wanted, label_sets(150, seed=1), label_sets(60, seed=2)))
    logits = predict_logits(load_trained(tmp_path / "out" / "model"), TokenTable.open(tmp_path / "data" / "dev"))
    expected = np.array(label_sets(60, seed=2)[1])
    order = [logits[expected[:, label] == 1, label].mean() - logits[expected[:, label] == 0, label].mean()
             for label in range(3)]  # fmt: skip
    assert min(order) > 0.1


def test_a_frozen_encoder_keeps_its_weights_and_gets_the_head_of_a_regression(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = experiment("frozen", task="regression", labels=[], score_range=[-1, 1])
    sentences, labels = reviews(80, seed=1)
    job = job_of(tmp_path, wanted, (sentences, [2.0 * label - 1 for label in labels]), (sentences[:20], labels[:20]))
    classifier, vectors = frozen(job, TokenTable.open(job.data / "train"))
    train(job)
    model = load_trained(job.output / "model")
    for name, parameter in classifier.encoder.named_parameters():
        torch.testing.assert_close(parameter, model.encoder.get_parameter(name))
    assert model.spec.pooling == "mean"
    scores = predict_logits(model, TokenTable.open(job.data / "train"))[:, 0]
    reference = Ridge(alpha=1, tol=1e-8).fit(vectors.toarray(), np.array(labels) - 0.5)
    assert scores == pytest.approx(2 * reference.predict(vectors.toarray()), abs=0.02)


def test_a_feature_that_hardly_varies_does_not_hide_the_others(spark: SparkSession, tmp_path: Path) -> None:
    """As some outputs of all-MiniLM-L6-v2, which are 1e-32 for every text."""
    random = np.random.default_rng(0)
    labels = np.arange(60) % 2
    columns = [labels + random.normal(size=60), 1e-32 * random.normal(size=60), np.full(60, 0.3), np.zeros(60)]
    vectors = csr_matrix(np.stack(columns, axis=1))
    to_spark = OnePartition(spark, Staging(), tmp_path)
    found = fit(to_spark, experiment("frozen").task, vectors, labels, np.ones(60))
    reference = LogisticRegression(tol=1e-8).fit(vectors[:, :1], labels)
    assert found.weights[1] - found.weights[0] == pytest.approx([reference.coef_[0, 0], 0, 0, 0], abs=1e-3)
    assert found.biases[1] - found.biases[0] == pytest.approx(reference.intercept_[0], abs=1e-3)


def test_features_may_come_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    """As those of documents of several windows do."""
    labels = np.arange(60) % 2
    ordered = csr_matrix(np.random.default_rng(0).normal(size=(60, 3)) + labels[:, None])
    mixed = csr_matrix((ordered.data[::-1], ordered.indices[::-1], ordered.indptr), ordered.shape)[::-1]
    assert not mixed.has_sorted_indices and (mixed != ordered).nnz == 0
    to_spark, task = OnePartition(spark, Staging(), tmp_path), experiment("frozen").task
    one, two = (fit(to_spark, task, each, labels, np.ones(60)) for each in (ordered, mixed))
    assert two.weights == pytest.approx(one.weights) and two.biases == pytest.approx(one.biases)


def test_what_is_learned_does_not_depend_on_how_the_rows_reach_the_executor(
    spark: SparkSession, bucket: str, tmp_path: Path
) -> None:
    """By a file in a store, or by Spark itself."""
    to_spark, random = OnePartition(spark, Staging(below(bucket, "rows")), tmp_path), np.random.default_rng(0)
    labels, weights = np.arange(300) % 3, random.random(300)
    vectors = csr_matrix(random.normal(size=(300, 40)) * (random.random((300, 40)) < 0.2) + 0.1 * labels[:, None])
    found = fit(to_spark, experiment("tfidf", labels=["a", "b", "c"]).task, vectors, labels, weights)
    rows = [
        (SparseVector(40, vectors[row].indices, vectors[row].data), float(weights[row]), float(labels[row]))
        for row in range(300)
    ]
    frame = spark.createDataFrame(rows, ["features", "weight", "label0"]).coalesce(1)
    expected = MLlibRegression(
        labelCol="label0", weightCol="weight", family="multinomial", regParam=1 / 300, standardization=False
    ).fit(frame)
    assert np.array_equal(found.weights, expected.coefficientMatrix.toArray()) and found.weights.std() > 0.01
    assert np.array_equal(found.biases, expected.interceptVector.toArray())


def test_a_class_without_rows_is_refused_with_its_name(spark: SparkSession, tmp_path: Path) -> None:
    sentences, labels = reviews(40, seed=1)
    job = job_of(tmp_path, experiment("tfidf", labels=["bad", "good", "so-so"]), (sentences, labels), reviews(20))
    with pytest.raises(BadInput, match="no training row has the label 'so-so'"):
        train(job)


SAME, ONCE = ([("good word1",)] * 8, [0, 1] * 4), ([("word1 word2",)], [0])
NONE: Any = ([], [])


@pytest.mark.parametrize(
    ("kind", "train_rows", "dev_rows", "message"),
    [
        ("tfidf", NONE, SAME, "data/train has no rows: nothing to train on"),
        ("frozen", NONE, SAME, "data/train has no rows: nothing to train on"),
        ("tfidf", SAME, NONE, "data/dev has no rows: nothing to train on, or to choose the best model by"),
        ("tfidf", SAME, SAME, "all training rows are the same to the model, .*: add rows whose texts have words that"),
        ("frozen", SAME, SAME, "all training rows are the same to the model"),
        ("tfidf", (SAME[0], [1] * 8), SAME, "no training row has the label 'bad'"),
        ("textcnn", NONE, SAME, "data/train: no token occurs twice, so there are no word vectors to learn: add rows"),
        ("textcnn", ONCE, SAME, "data/train: no token occurs twice"),
    ],
)
def test_rows_from_which_nothing_can_be_learned_are_refused(
    spark: SparkSession, tmp_path: Path, kind: str, train_rows: Any, dev_rows: Any, message: str
) -> None:
    job = job_of(tmp_path, experiment(kind), train_rows, dev_rows)
    with pytest.raises(BadInput, match=message):
        write_text_cnn(job, job.output) if kind == "textcnn" else train(job)


def test_scores_that_are_all_the_same_are_learned(spark: SparkSession, tmp_path: Path) -> None:
    wanted = experiment("tfidf", task="regression", labels=[], score_range=[0, 5])
    rows = reviews(20)[0], [3.0] * 20
    train(job_of(tmp_path, wanted, rows, rows))
    scores = predict_logits(load_trained(tmp_path / "out" / "model"), TokenTable.open(tmp_path / "data" / "dev"))
    assert scores == pytest.approx(3, abs=1e-4)


def test_a_text_cnn_begins_with_the_same_word_vectors_every_time(spark: SparkSession, tmp_path: Path) -> None:
    job = job_of(tmp_path, experiment("textcnn"), reviews(60, seed=1), reviews(20, seed=2))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        begun = write_text_cnn(job, tmp_path / name)
        assert begun.encoder == tmp_path / name and begun.spent > 0
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
    model = load_pretrained(tmp_path / "one", job.head).eval()
    alone, padded = torch.tensor([[2, 4, 9, 3]]), torch.tensor([[2, 4, 9, 3, 7, 7, 7]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0, 0]])
    torch.testing.assert_close(model(alone, torch.ones_like(alone)), model(padded, mask), atol=1e-6, rtol=1e-5)
    launch(replace(begun, spent=1001))  # as if it had taken so many seconds to learn them
    training = json.loads((job.output / "training.json").read_text())
    assert training["seconds"] > 1000 and 0 < training["rows_per_second"] < 1


def test_a_model_on_tfidf_is_the_same_every_time_and_no_encoder(spark: SparkSession, tmp_path: Path) -> None:
    job = job_of(tmp_path, experiment("tfidf"), reviews(40, seed=1), reviews(20, seed=2))
    train(job)
    first = (job.output / "model" / "model.safetensors").read_bytes()
    train(job)
    assert (job.output / "model" / "model.safetensors").read_bytes() == first
    with pytest.raises(BadInput, match="a model on TF-IDF, which has no layers to train: choose an encoder"):
        load_pretrained(job.output / "model", job.head)
