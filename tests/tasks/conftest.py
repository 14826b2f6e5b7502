"""What the stages' tests share: one Spark session for all of them, and artifacts without a store."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from pyspark.sql import SparkSession
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from include.artifacts import Artifact, Manifest
from include.experiment import Experiment
from tasks.spark import session
from tasks.staging import STAGING, Staging, below
from tests.tasks.cluster import Cluster, running, store
from tests.tasks.machines import machines
from tests.tasks.sources.in_pieces import in_pieces  # noqa: F401  # a fixture

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = "a good bad film the was very dull it moved me ##s ##ly un ##watch ##able great acting 1 2 3 ! . , caf ##e"


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tiny models gain nothing from a second thread, and wait long for it on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture
def horovod() -> Iterator[None]:
    """Horovod with this process as its only rank."""
    import horovod.torch as hvd

    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session(Experiment(), "tests") as spark:
        yield spark


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a bucket of an S3 server, which starts for the first test that asks for it."""
    with machines(tmp_path_factory.mktemp("s3"), separate=False) as here, store(here) as (_, login):
        host = login["AWS_ENDPOINT_URL"].removeprefix("http://")
        yield f"s3://user:secret@bucket?endpoint_override={host}&scheme=http"


@pytest.fixture(params=["in place", "store"])
def staged(request: pytest.FixtureRequest) -> Staging:
    """The staging of a test, which runs in place and again with a store."""
    if request.param == "in place":
        return Staging()
    return Staging(below(request.getfixturevalue("bucket"), f"{secrets.token_hex(4)}/a b"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Spark cluster whose machines have no common folder."""
    with running(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def with_store(bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of the store through which the stages of a test exchange files with executors."""
    url = below(bucket, secrets.token_hex(4))
    monkeypatch.setenv(STAGING, url)
    monkeypatch.setattr("tasks.staging.is_local", lambda _: False)
    return url


@pytest.fixture(scope="session")
def artifact() -> Callable[[Path, str], Artifact]:
    """A folder as an artifact of a stage."""

    def make(path: Path, stage: str) -> Artifact:
        return Artifact(path, Manifest(stage, "0" * 16, 1, {}, {}, "", ""))

    return make


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new database of MLflow's, which takes seconds to make."""
    from mlflow import MlflowClient

    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def database(empty_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's database of the home tmp_path, there from the start, and no server."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow").mkdir()
    shutil.copy(empty_database, tmp_path / "mlflow")


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with random weights and a word-piece vocabulary of a few words, as a model folder."""
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *WORDS.split()])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token"], SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)  # type: ignore[no-untyped-call]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=128,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """A tiny classifier, as the stage train writes it."""
    from tests.tasks.stages.labeling.score.models import trained

    return trained(tmp_path_factory.mktemp("train") / "model", encoder)
