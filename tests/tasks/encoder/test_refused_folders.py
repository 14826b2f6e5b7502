"""Which folders are not loaded, as an encoder or as a trained model, and what the error says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2Model

from include.stages import BadInput
from tasks.encoder.loading import check_encoder, copy_tokenizer, load_pretrained, load_trained
from tasks.encoder.spec import HeadSpec
from tasks.encoder.tokens import open_tokenizer
from tests.tasks.encoder.families import family
from tests.tasks.encoder.samples import WORDS, edit_config, tiny_encoder

SPEC = HeadSpec("classification", 2, max_length=32, label_names=("negative", "positive"))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(BadInput, match=f"{name} is missing"):
        load_pretrained(folder, SPEC)


def test_truncated_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(BadInput, match=r"model\.safetensors cannot be read"):
        load_pretrained(folder, SPEC)


def test_a_pickle_under_the_name_of_safetensors(folder: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, folder / "model.safetensors")
    with pytest.raises(BadInput, match=r"model\.safetensors cannot be read"):
        load_pretrained(folder, SPEC)


def test_weights_of_another_shape(folder: Path) -> None:
    edit_config(folder, intermediate_size=48)
    with pytest.raises(BadInput, match=r"model\.safetensors cannot be read"):
        load_pretrained(folder, SPEC)


def test_weights_that_lack_some(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file({name: weights[name] for name in weights if "layer.1" not in name}, folder / "model.safetensors")
    with pytest.raises(BadInput, match=r"lacks \d+ weights, for example encoder.layer.1"):
        load_pretrained(folder, SPEC)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "perceptron-9000"}, "not the configuration of a known encoder"),
        ({"hidden_size": "32"}, "not the configuration of a known encoder .*Field 'hidden_size' expected int, got str"),
        ({"vocab_size": None}, "not the configuration of a known encoder .*Field 'vocab_size' expected int, got NoneT"),
        ({"num_attention_heads": 0}, r"config\.json describes: fetch the model again \(ZeroDivisionError"),
        ({"hidden_act": "nope"}, r"config\.json describes: fetch the model again \(KeyError: 'nope'"),
        ({"pad_token_id": 999}, r"config\.json describes: fetch the model again \(AssertionError: Padding_idx"),
        ({"dtype": "float99"}, "not the configuration of a known encoder .*float99"),
    ],
)
def test_a_config_that_cannot_be(folder: Path, values: dict[str, Any], message: str) -> None:
    edit_config(folder, **values)
    with pytest.raises(BadInput, match=message):
        load_pretrained(folder, SPEC)


@pytest.mark.parametrize("text", ["{", "null", "[1]", "[" * 100_000])
def test_a_config_that_is_no_json_object(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(BadInput, match="not the configuration of a known encoder"):
        load_pretrained(folder, SPEC)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"version": "1.0", "model": {"type": "Nope"}}'])
def test_a_damaged_tokenizer(folder: Path, text: str) -> None:
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(BadInput, match=r"tokenizer\.json is not a tokenizer: fetch the model again \("):
        open_tokenizer(folder / "tokenizer.json", 32)
    with pytest.raises(BadInput, match=r"does not contain a valid tokenizer: fetch the model again \("):
        load_pretrained(folder, SPEC)


def test_a_tokenizer_that_cannot_say_unknown(folder: Path) -> None:
    values = json.loads((folder / "tokenizer.json").read_text())
    values["model"]["unk_token"] = "[NONE]"
    (folder / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(BadInput, match=r"tokenizer\.json is not a tokenizer: fetch the model again \(.*Missing"):
        open_tokenizer(folder / "tokenizer.json", 32)


def test_an_encoder_with_a_decoder(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(BadInput, match="contains an encoder-decoder model"):
        load_pretrained(folder, SPEC)


def test_a_tokenizer_with_more_words_than_the_encoder(tmp_path: Path) -> None:
    tiny_encoder(tmp_path / "encoder", vocab_size=len(WORDS) - 1)
    with pytest.raises(BadInput, match=r"tokenizer\.json belongs to another model"):
        load_pretrained(tmp_path / "encoder", SPEC)


def test_inputs_longer_than_the_positions(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"write preprocessing.max_length: 64 or less"):
        load_pretrained(folder, dataclasses.replace(SPEC, max_length=65))


def test_positions_that_start_after_the_padding_id(tmp_path: Path) -> None:
    family(tmp_path, "mpnet")  # 66 positions, of which two are taken
    load_pretrained(tmp_path, dataclasses.replace(SPEC, max_length=64))
    check_encoder(tmp_path, 64)
    with pytest.raises(BadInput, match="has 64 positions"):
        load_pretrained(tmp_path, dataclasses.replace(SPEC, max_length=65))
    with pytest.raises(BadInput, match="has 64 positions"):
        check_encoder(tmp_path, 65)


def test_a_damaged_head(folder: Path, tmp_path: Path) -> None:
    model, saved = load_pretrained(folder, SPEC), tmp_path / "model"
    model.save(saved)
    copy_tokenizer(folder, saved, model, SPEC.max_length)
    weights = load_file(saved / "model.safetensors")
    save_file({**weights, "classifier.weight": torch.zeros(3, 32)}, saved / "model.safetensors")
    with pytest.raises(BadInput, match=r"model\.safetensors cannot be read into the model"):
        load_trained(saved)
    del weights["classifier.bias"]
    save_file(weights, saved / "model.safetensors")
    with pytest.raises(BadInput, match=r"lacks 1 weights, for example classifier\.bias"):
        load_trained(saved)


def test_an_encoder_is_no_trained_model(folder: Path) -> None:
    with pytest.raises(BadInput, match=r"config\.json does not describe a trained head, .*\['BertModel'\]"):
        load_trained(folder)


def test_a_head_that_reads_the_padding_is_refused(tmp_path: Path) -> None:
    tiny_encoder(tmp_path)
    config = GPT2Config(vocab_size=len(WORDS), n_embd=32, n_layer=2, n_head=2, n_positions=64, pad_token_id=1)
    GPT2Model(config).save_pretrained(tmp_path)
    message = r"the encoder \(gpt2\) cannot be used with model.pooling: native: write model.pooling: mean"
    with pytest.raises(BadInput, match=message):
        load_pretrained(tmp_path, SPEC)
    load_pretrained(tmp_path, dataclasses.replace(SPEC, pooling="mean"))


def test_a_folder_with_the_three_files_alone(folder: Path) -> None:
    for file in folder.iterdir():
        if file.name not in ("config.json", "model.safetensors", "tokenizer.json"):
            file.unlink()
    load_pretrained(folder, SPEC)
