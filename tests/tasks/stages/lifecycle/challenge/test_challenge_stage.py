"""The stage challenge with real, tiny models, run as the runner does."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from include.artifacts import Artifact, write_json
from include.glue import TASKS
from include.stages import BadInput, ExitCode, result_line
from tasks.encoder.batching import TokenTable
from tasks.encoder.loading import copy_tokenizer, load_pretrained, load_trained
from tasks.encoder.spec import HeadSpec
from tasks.inference.packaged_backends import OnnxBackend
from tasks.inference.trained_model import TorchBackend
from tasks.runner import run_stage
from tasks.stages.lifecycle.challenge.comparison import milliseconds
from tasks.stages.lifecycle.challenge.models import load_challenger, load_champion, retokenize
from tasks.stages.pipeline.evaluate.rows import predictions_table
from tasks.stages.pipeline.evaluate.summary import score
from tasks.stages.pipeline.package.forms import export_onnx
from tests.tasks.encoder.samples import WORDS, label_sets, of_words, tiny_encoder, write_split
from tests.tasks.stages.lifecycle.challenge.homes import ROWS, STSB, Home, changed, home, negate
from tests.tasks.stages.pipeline.package.packages import speeds_of, unchanged_package


@pytest.fixture
def movies(tmp_path: Path) -> Home:
    made = home(tmp_path, {})
    made.train(made.model)
    return made


def challenge(home: Home, **retraining: float) -> Artifact:
    artifact = run_stage("challenge", home.experiment(**retraining), home.run)
    result_line(artifact.manifest.result)
    return artifact


def page(artifact: Artifact) -> str:
    return (artifact.path / "challenge.html").read_text(encoding="utf-8")


def test_the_first_model_has_nothing_to_beat(movies: Home) -> None:
    movies.crown(None)
    artifact = challenge(movies)
    result = artifact.manifest.result
    assert artifact.manifest.exit_code == ExitCode.DONE
    assert (result["outcome"], result["passed"], result["champion"], result["rows"]) == ("first", True, "", ROWS)
    assert result["metrics"]["model"] > 0.8 and result["metrics"]["champion"] is None
    assert result["files"] == {"challenge": "challenge.html"}
    assert "There is no champion yet" in page(artifact)
    latency, size = json.loads((artifact.path / "challenge.json").read_text())["costs"]
    assert 0 < latency["model"] < 1000 and latency["champion"] is None
    files = movies.run.artifact("train").path / "model"
    assert size["model"] == pytest.approx(sum(file.stat().st_size for file in files.iterdir()) / 1e6)


def test_the_same_model_again_is_not_worse(movies: Home) -> None:
    movies.crown(movies.model)
    artifact = challenge(movies)
    result = artifact.manifest.result
    assert (result["outcome"], result["passed"], result["champion"]) == ("not worse", True, "3")
    assert (result["difference"], result["p"], result["margin"]) == (0, 1, 0.02)
    assert result["metrics"]["model"] == result["metrics"]["champion"]
    assert "The new model is not worse" in page(artifact)
    assert challenge(movies).path == artifact.path


def test_a_damaged_copy_is_refused_with_its_evidence(movies: Home, tmp_path: Path) -> None:
    movies.crown(movies.model)
    movies.train(changed(movies.model, tmp_path / "negated", negate))
    artifact = challenge(movies)
    assert artifact.manifest.exit_code == ExitCode.GATE_FAILED
    assert artifact.manifest.message.startswith("the new model of movie-reviews is refused: accuracy 0.")
    assert "Remedy: keep the champion" in artifact.manifest.message
    evidence = json.loads((artifact.path / "challenge.json").read_text())
    assert (evidence["outcome"], evidence["passed"]) == ("worse", False)
    found = evidence["whole"]["found"]
    assert found["only_model"] + found["only_champion"] == ROWS
    assert found["difference"] == pytest.approx((found["only_model"] - found["only_champion"]) / ROWS)
    assert evidence["metrics"]["champion"]["accuracy"] - evidence["metrics"]["model"]["accuracy"] > 0.5
    assert "Only the champion is right" in page(artifact)
    with pytest.raises(BadInput, match="challenge failed in the run one: the new model"):
        movies.run.artifact("challenge")


def test_a_better_model_is_not_worse(movies: Home, tmp_path: Path) -> None:
    movies.crown(changed(movies.model, tmp_path / "negated", negate))
    result = challenge(movies).manifest.result
    assert result["outcome"] == "not worse" and result["interval"][0] > 0.5


def test_a_slice_refuses_where_the_whole_does_not(movies: Home, tmp_path: Path) -> None:
    def favour(head: torch.nn.Linear) -> None:
        head.bias[0] += 100

    movies.crown(movies.model)
    movies.train(changed(movies.model, tmp_path / "one class", favour))
    artifact = challenge(movies, margin=0.99)
    result = artifact.manifest.result
    assert (result["outcome"], result["passed"]) == ("not worse", False)
    assert artifact.manifest.exit_code == ExitCode.GATE_FAILED
    assert any("label:positive (labeled positive)" in reason for reason in result["reasons"])
    assert not any("label:negative" in reason for reason in result["reasons"])
    assert challenge(movies, margin=0.99, slice_margin=0.99).manifest.result["passed"]


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"max_latency": 1e-6}, "retraining.max_latency = 1e-06 ms"),
        ({"max_size": 0.001}, "retraining.max_size = 0.001"),
    ],
)
def test_budgets_hold_without_a_champion_too(movies: Home, budget: dict[str, float], reason: str) -> None:
    movies.crown(None)
    artifact = challenge(movies, **budget)
    (found,) = artifact.manifest.result["reasons"]
    assert reason in found and artifact.manifest.exit_code == ExitCode.GATE_FAILED
    assert artifact.manifest.result["outcome"] == "first"
    assert challenge(movies, max_latency=10_000, max_size=10).manifest.result["passed"]


def test_scores(tmp_path: Path) -> None:
    pairs = home(tmp_path, STSB)
    pairs.train(pairs.model)
    pairs.crown(pairs.model)
    same = challenge(pairs).manifest.result
    assert (same["outcome"], same["metric"], same["difference"]) == ("not worse", "pearson", 0)
    pairs.train(changed(pairs.model, tmp_path / "negated", negate))
    artifact = challenge(pairs)
    assert artifact.manifest.exit_code == ExitCode.GATE_FAILED
    assert artifact.manifest.result["metrics"]["model"] == pytest.approx(-same["metrics"]["champion"], abs=1e-4)
    assert "Where the new model lies further off" in page(artifact)


def test_a_champion_with_other_token_ids_is_read_in_its_own(movies: Home, tmp_path: Path) -> None:
    """The same model under a vocabulary whose words are numbered the other way round says the same."""
    order = [0, 1, 2, 3, *reversed(range(4, len(WORDS)))]
    other, folder = load_trained(movies.model), tmp_path / "other"
    embeddings = cast(torch.nn.Embedding, other.encoder.get_input_embeddings())
    embeddings.weight.data = embeddings.weight.data[order]
    other.save(folder)
    words = of_words(WordLevel({WORDS[word]: place for place, word in enumerate(order)}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)  # type: ignore[no-untyped-call]
    movies.crown(folder)
    dev, task = TokenTable.open(movies.dev), movies.experiment().task
    named = json.loads((movies.run.artifact("champion").path / "champion.json").read_text())
    champion = load_champion(task, dev, movies.validated, named, movies.run.store)
    assert champion.table.ids(0).tolist() != dev.ids(0).tolist()
    evaluated = movies.run.artifact("evaluate").path / "predictions.parquet"
    model = load_challenger(task, dev, movies.model, movies.run.artifact("package").path, evaluated).scored
    assert champion.scored.confidence == pytest.approx(model.confidence, abs=1e-5)
    assert challenge(movies).manifest.result["p"] == 1


def test_a_champion_reads_as_far_as_it_was_trained_to(movies: Home) -> None:
    dev = TokenTable.open(movies.dev)
    cut = retokenize(dev, _columns(dev), movies.model / "tokenizer.json", 8)
    assert dev.lengths.max() > 8 and cut.lengths.tolist() == dev.lengths.clip(max=8).tolist()
    assert cut.ids(0).tolist() == [*dev.ids(0)[:7], dev.ids(0)[-1]]
    tokenizer = movies.model / "tokenizer_config.json"
    write_json(tokenizer, {**json.loads(tokenizer.read_text()), "model_max_length": 8})
    named = {"model": "movies", "version": "3", "train": "", "folder": str(movies.model)}
    champion = load_champion(movies.experiment().task, dev, movies.validated, named, movies.run.store)
    assert champion.table.lengths.max() == 8


def test_a_champion_reads_the_texts_as_they_were_cleaned_in_its_own_training(movies: Home, tmp_path: Path) -> None:
    raw = pq.read_table(movies.validated)
    loud = tmp_path / "loud.parquet"
    texts = [f"<b>{text.upper()}</b>" for text in raw["sentence1"].to_pylist()]
    pq.write_table(raw.set_column(raw.column_names.index("sentence1"), "sentence1", [texts]), loud)
    dev, task = TokenTable.open(movies.dev), movies.experiment().task
    folder = tmp_path / "cleaned"
    shutil.copytree(movies.model, folder)
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**config, "cleaning": ["lowercase", "html", "whitespace"]})
    named = {"model": "movies", "version": "3", "train": "", "folder": str(folder)}
    champion = load_champion(task, dev, loud, named, movies.run.store)
    read = [text.strip() for (text,) in champion.table.sentences(np.arange(ROWS))]
    assert read == [text for (text,) in dev.sentences(np.arange(ROWS))]
    pq.write_table(raw.slice(1), loud)
    with pytest.raises(BadInput, match=r"loud\.parquet does not contain the rows of .*: run preprocess"):
        load_champion(task, dev, loud, named, movies.run.store)


def test_a_champion_of_single_texts_is_not_compared_on_pairs(tmp_path: Path) -> None:
    pairs = home(tmp_path, STSB)
    config = json.loads((pairs.model / "config.json").read_text())
    write_json(pairs.model / "config.json", {**config, "texts": 1})
    pairs.train(pairs.model)
    pairs.crown(pairs.model)
    with pytest.raises(BadInput, match=r"trained on rows with 1 text\(s\), but those of STS-B have 2"):
        challenge(pairs)


def test_a_champion_divides_long_texts_as_it_was_trained_to(movies: Home) -> None:
    dev, tokenizer = TokenTable.open(movies.dev), movies.model / "tokenizer.json"
    divided = retokenize(dev, _columns(dev), tokenizer, 8, stride=2)
    assert len(divided) > len(divided.documents) == len(dev)
    assert divided.sentences(divided.documents) == dev.sentences(dev.documents)
    assert divided.labels[divided.documents].tolist() == dev.labels.tolist()
    again = retokenize(divided, _columns(divided), tokenizer, 32)  # a champion that truncates, after one that did not
    assert [again.ids(row).tolist() for row in range(len(dev))] == [dev.ids(row).tolist() for row in range(len(dev))]
    named = {"model": "movies", "version": "3", "train": "", "folder": str(movies.model)}
    scored = load_champion(movies.experiment().task, divided, movies.validated, named, movies.run.store)
    models = {"model": dataclasses.replace(scored, table=divided), "champion": scored}
    assert len(scored.scored) == len(dev) < len(divided)
    assert all(value > 0 for value in milliseconds(models).values())


def _columns(dev: TokenTable) -> list[list[str]]:
    return [list(column) for column in zip(*dev.sentences(dev.documents), strict=True)]


def test_a_champion_of_another_task_is_refused(movies: Home, tmp_path: Path) -> None:
    movies.crown(home(tmp_path / "pairs", STSB).model)
    with pytest.raises(BadInput, match=r"version 3 of movies .* a regression of 0 to 5, but .* \(negative, positive"):
        challenge(movies)


def test_a_champion_with_other_labels_is_refused(movies: Home, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(movies.model, folder)
    config = json.loads((folder / "config.json").read_text())
    names = {"id2label": {"0": "positive", "1": "negative"}, "label2id": {"positive": 0, "negative": 1}}
    write_json(folder / "config.json", {**config, **names})
    movies.crown(folder)
    with pytest.raises(BadInput, match=r"a classification of 2 classes \(positive, negative\), but movie-reviews"):
        challenge(movies)


def test_a_champion_that_was_damaged_is_refused(movies: Home) -> None:
    folder = movies.crown(movies.model)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-100] ^= 1  # it still loads
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(BadInput, match=r"model\.safetensors is missing or damaged.* roll back"):
        challenge(movies)


def test_a_champion_from_elsewhere_is_checked_as_it_is_read(movies: Home, tmp_path: Path) -> None:
    task, dev, named = movies.experiment().task, TokenTable.open(movies.dev), {"model": "movies", "version": "3"}
    elsewhere = {**named, "train": "", "folder": str(tmp_path / "gone")}
    with pytest.raises(BadInput, match=r"config\.json is missing"):
        load_champion(task, dev, movies.validated, elsewhere, movies.run.store)
    (movies.model / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match="does not contain a valid tokenizer"):
        load_champion(task, dev, movies.validated, {**elsewhere, "folder": str(movies.model)}, movies.run.store)


def test_predictions_are_aligned_by_row_and_must_be_all(movies: Home, tmp_path: Path) -> None:
    task, dev = movies.experiment().task, TokenTable.open(movies.dev)
    table = pq.read_table(movies.run.artifact("evaluate").path / "predictions.parquet")
    shuffled = tmp_path / "shuffled.parquet"
    pq.write_table(table.take(pa.array(reversed(range(ROWS)))), shuffled)
    scored = load_challenger(task, dev, movies.model, movies.run.artifact("package").path, shuffled).scored
    assert scored.predicted.tolist() == table["prediction"].to_pylist()
    assert scored.confidence == pytest.approx([max(row) for row in table["probabilities"].to_pylist()])
    pq.write_table(table.drop_columns("temperature"), shuffled)  # as an older revision wrote it
    again = load_challenger(task, dev, movies.model, movies.run.artifact("package").path, shuffled).scored
    assert again.predicted.tolist() == scored.predicted.tolist()
    pq.write_table(table.slice(1), shuffled)
    with pytest.raises(BadInput, match=r"does not contain the rows of .* run evaluate and all later stages again"):
        load_challenger(task, dev, movies.model, movies.run.artifact("package").path, shuffled)


def test_the_latency_is_that_of_the_form_that_is_served(movies: Home, tmp_path: Path) -> None:
    dev, task = TokenTable.open(movies.dev), movies.experiment().task
    evaluated = movies.run.artifact("evaluate").path / "predictions.parquet"
    package, model = tmp_path / "package", load_trained(movies.model)
    unchanged_package(package, movies.model)
    file = package / "package.json"
    said = json.loads(file.read_text())
    export_onnx(model, dev, package / "fp32.onnx")
    onnx = {"name": "onnx", "engine": "onnxruntime", "precision": "fp32", "file": "fp32.onnx", "offered": True}
    onnx |= {"speeds": speeds_of(2) | {"one_thread": speeds_of(0.1)["one_thread"]}, "reasons": []}
    write_json(file, {**said, "served": "onnx", "forms": [*said["forms"], onnx]})
    found = load_challenger(task, dev, movies.model, package, evaluated)
    assert isinstance(found.served, OnnxBackend)
    assert milliseconds({"model": found})["model"] > 0
    movies.crown(movies.model)
    named = json.loads((movies.run.artifact("champion").path / "champion.json").read_text())
    assert isinstance(load_champion(task, dev, movies.validated, named, movies.run.store).served, TorchBackend)
    key = movies.run.artifact("package").manifest.key
    champion = load_champion(task, dev, movies.validated, {**named, "package": key}, movies.run.store)
    assert isinstance(champion.served, TorchBackend)  # the only form that its package offers


def test_a_model_of_several_labels_is_read_back_from_its_probabilities(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    task = dataclasses.replace(TASKS["multi-label"], labels=names, label_names=names)
    spec = HeadSpec("multilabel", 3, max_length=32, label_names=names)
    encoder = tiny_encoder(tmp_path / "encoder")
    model = load_pretrained(encoder, spec).eval()
    torch.nn.init.normal_(model.output_layer.weight, std=0.5)
    model.save(tmp_path / "model")
    copy_tokenizer(encoder, tmp_path / "model", model, 32)
    folder = write_split(tmp_path / "dev", *label_sets(60))
    dev, scored = TokenTable.open(folder), score(task, model, folder).cross_fitted()
    pq.write_table(predictions_table(scored), tmp_path / "predictions.parquet")
    unchanged_package(tmp_path / "package", tmp_path / "model")
    evaluated = tmp_path / "predictions.parquet"
    found = load_challenger(task, dev, tmp_path / "model", tmp_path / "package", evaluated).scored
    assert found.logits == pytest.approx(scored.logits, abs=1e-5)
    assert (found.predicted == scored.predicted).all()
    again = retokenize(dev, _columns(dev), tmp_path / "model" / "tokenizer.json", 32)
    assert again.labels.tolist() == dev.labels.tolist()
