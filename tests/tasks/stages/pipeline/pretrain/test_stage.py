from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from include.artifacts import Artifact, Manifest, artifact_key
from include.experiment import Experiment
from include.fields.training import Loss
from include.named_experiments import build
from include.runs import Run
from include.stages import STAGES, BadInput
from tasks.encoder.loading import load_trained
from tasks.runner import run_stage
from tasks.stages.pipeline.pretrain.stage import plan, settings
from tasks.training.job import Job
from tasks.training.training_state import identity
from tests.tasks.encoder.samples import write_split
from tests.tasks.stages.pipeline.pretrain.samples import text, tiny_encoder


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run beside an encoder and a text."""
    tiny_encoder(tmp_path / "encoder")
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress("\n".join(text(100)).encode()))
    return Run(tmp_path / "runs" / "one")


def experiment(root: Path, pretraining: dict[str, Any] | None = None, **training: Any) -> Experiment:
    own = {"batch_size": 8, "epochs": 1, **(pretraining or {})}
    shared = {"epochs": 1, "batch_size": 8, "evaluations": 1, "ranks": 1, "precision": "fp32", **training}
    values = {
        "model": {"name": str(root / "encoder")},
        "preprocessing": {"max_length": 32},
        "pretraining": own,
        "training": shared,
    }
    return build(values, "the test's experiment")


def with_text(root: Path, pretraining: dict[str, Any] | None = None, **training: Any) -> Experiment:
    return experiment(root, {"text": str(root / "text.txt.gz"), **(pretraining or {})}, **training)


def preprocess(run: Run, wanted: Experiment) -> Artifact:
    """Stands in for the stage preprocess, in the words of the tiny encoder."""
    stage = STAGES["preprocess"]
    part = stage.part(wanted)
    key = artifact_key(stage.version, part, {}, "")
    with run.store.writing("preprocess", key) as folder:
        for split, rows in (("train", 40), ("dev", 20)):
            write_split(folder / split, [(line,) for line in text(rows)], [number % 2 for number in range(rows)])
        artifact = run.store.commit(folder, Manifest("preprocess", key, stage.version, part, {}, "", "test"))
    run.add(artifact, wanted)
    return artifact


def test_train_starts_from_what_pretrain_made(tmp_path: Path, run: Run) -> None:
    wanted = with_text(tmp_path, learning_rate=1e-12)
    preprocess(run, wanted)
    pretrained = run_stage("pretrain", wanted, run)
    result = pretrained.manifest.result
    assert (result["documents"], result["best_step"]) == ({"train": 98, "dev": 2}, result["steps"])
    assert result["tokens"]["train"] > 98 * 3 and result["perplexity"] > 1 and result["loss"] > 0
    assert {path.name for path in pretrained.path.iterdir()} == {
        "blocks", "model", "metrics.jsonl", "training.json", "manifest.json"
    }  # fmt: skip
    AutoTokenizer.from_pretrained(pretrained.path / "model")
    encoder = AutoModel.from_pretrained(pretrained.path / "model").state_dict()
    before = load_file(tmp_path / "encoder" / "model.safetensors")
    trained = encoder_of(run_stage("train", wanted, run))  # at no rate to speak of
    for name, values in trained.items():
        torch.testing.assert_close(values, encoder[name], atol=1e-6, rtol=0)
    name = "encoder.layer.1.output.dense.weight"
    assert (trained[name] - before[name]).abs().max() > 1e-4


def test_without_a_text_there_is_nothing_to_do_and_train_starts_as_ever(tmp_path: Path, run: Run) -> None:
    wanted = experiment(tmp_path, learning_rate=1e-12)
    preprocess(run, wanted)
    with pytest.raises(BadInput, match="has no pretrain yet: run the stage pretrain first"):
        run_stage("train", wanted, run)
    artifact = run_stage("pretrain", wanted, run)
    assert artifact.manifest.result["pretrained"] is False
    assert [path.name for path in artifact.path.iterdir()] == ["manifest.json"]
    before = load_file(tmp_path / "encoder" / "model.safetensors")
    for name, values in encoder_of(run_stage("train", wanted, run)).items():
        torch.testing.assert_close(values, before[name], atol=1e-6, rtol=0)


def encoder_of(train: Artifact) -> dict[str, torch.Tensor]:
    """The weights of the encoder in train's artifact, under their names in an encoder without a head."""
    weights = load_trained(train.path / "model").encoder.state_dict()
    return {name: values for name, values in weights.items() if not name.startswith("pooler.")}  # a part of the head


def test_the_artifact_follows_text_and_settings_but_not_fine_tunings(tmp_path: Path, run: Run) -> None:
    def key(wanted: Experiment) -> str:
        stage = STAGES["pretrain"]
        return artifact_key(stage.version, stage.part(wanted), {}, plan(wanted, run))

    first = key(with_text(tmp_path))
    assert key(with_text(tmp_path, epochs=2, learning_rate=1e-3, seed=5, layer_decay=0.9)) == first
    others = {key(with_text(tmp_path, {"whole_words": True})), key(with_text(tmp_path, clip_norm=2.0))}
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress("\n".join(text(99)).encode()))
    others.add(key(with_text(tmp_path)))
    assert len({first, *others}) == 4
    without = key(experiment(tmp_path))
    (tmp_path / "text.txt.gz").unlink()
    (tmp_path / "encoder" / "config.json").unlink()
    assert key(experiment(tmp_path)) == without
    assert key(experiment(tmp_path, {"epochs": 3}, precision="bf16", accumulation=2)) == without


def test_trainings_settings_are_free_while_there_is_no_text(tmp_path: Path, run: Run) -> None:
    made = run_stage("pretrain", experiment(tmp_path), run)
    assert run.artifact("pretrain", experiment(tmp_path, precision="bf16")).manifest == made.manifest
    with pytest.raises(BadInput, match=r"another experiment: pretraining.text was '' and is now '.*text.txt.gz'\. Run"):
        run.artifact("pretrain", with_text(tmp_path))


def test_the_settings_are_pretrainings_own_and_the_engines(tmp_path: Path) -> None:
    wanted = with_text(tmp_path, {"seed": 9, "learning_rate": 3e-4}, clip_norm=2.0, layer_decay=0.5, seed=3, epochs=7)
    training = settings(wanted).training
    assert (training.epochs, training.batch_size, training.learning_rate, training.seed) == (1, 8, 3e-4, 9)
    assert (training.clip_norm, training.precision, training.layer_decay) == (2.0, "fp32", 1.0)
    assert not training.sparse_embeddings


def test_what_only_fine_tuning_reads_keeps_no_pretraining_from_its_checkpoints(tmp_path: Path) -> None:
    def identity_with(**changes: Any) -> dict[str, str]:
        wanted = settings(with_text(tmp_path).model_copy(update=changes))
        return identity(Job(wanted, tmp_path, tmp_path, tmp_path, "masked words"))

    model = with_text(tmp_path).model
    fine_tuning = {"loss": Loss(kind="focal"), "model": model.model_copy(update={"pooling": "cls", "dropout": 0.3})}
    assert identity_with(**fine_tuning) == identity_with()
    assert identity_with(model=model.model_copy(update={"name": "another"})) != identity_with()


@pytest.mark.parametrize(("change", "message"), [
    ({"text": "nowhere.txt"}, "nowhere.txt is missing"),
    ({"batch_size": 4096}, "pretraining.batch_size is 4096, but .*text.txt.gz has only [0-9]+ blocks to train on"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(tmp_path: Path, run: Run, change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        run_stage("pretrain", with_text(tmp_path, change), run)
    assert not list((tmp_path / "artifacts").glob("pretrain/[!.]*"))


def test_a_text_without_known_words_is_refused(tmp_path: Path, run: Run) -> None:
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress("水\n火\n木\n".encode()))
    with pytest.raises(BadInput, match="the tokenizer knows no word of the dev documents"):
        run_stage("pretrain", with_text(tmp_path), run)


def test_ranks_must_divide_the_batch(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"pretraining.batch_size 33 is not a multiple of training.ranks 2: write 32"):
        with_text(tmp_path, {"batch_size": 33}, ranks=2)
    assert experiment(tmp_path, {"batch_size": 33}, ranks=2).pretraining.batch_size == 33


def test_the_batch_size_says_nothing_where_tokens_are_counted(tmp_path: Path, run: Run) -> None:
    wanted = with_text(tmp_path, {"batch_size": 4096})
    values = {"batching": {"kind": "tokens", "batch_tokens": 512}, "pretraining": {"batch_size": 4097}}
    assert run_stage("pretrain", merged(wanted, values, ranks=1), run).manifest.result["steps"] > 1
    assert merged(wanted, values, ranks=2).training.ranks == 2


def merged(wanted: Experiment, values: dict[str, Any], **training: Any) -> Experiment:
    whole = wanted.model_dump(mode="json")
    for section, fields in {**values, "training": training}.items():
        whole[section] |= fields
    return build(whole, "the test's experiment")
