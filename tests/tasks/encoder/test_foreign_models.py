"""Models with heads of other origin: which are read, which are refused, and that no code of their folders runs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    PreTrainedConfig,
)

from include.stages import BadInput
from tasks.encoder.loading import copy_tokenizer, load_encoder, load_pretrained, load_trained, read_head
from tasks.encoder.spec import HeadSpec
from tests.tasks.encoder.samples import WORDS, edit_config, tiny_encoder

SPEC = HeadSpec("classification", 2, max_length=32, label_names=("negative", "positive"))
SMALL = {
    "vocab_size": len(WORDS), "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 64,
}  # fmt: skip
CODE = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model", "AutoModelForSequenceClassification": "evil.Model"}


@pytest.fixture
def foreign(folder: Path) -> Path:
    """A model for two labels as plain transformers saves it, which a test may change."""
    return save_foreign(folder, AutoConfig.for_model("bert", **SMALL, id2label={0: "negative", 1: "positive"}))


def save_foreign(folder: Path, config: PreTrainedConfig) -> Path:
    """Exchange the model in a folder for one with random weights and a head."""
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
    return folder


class Evil:
    """A pickle that writes a file where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "evil"},
            r"no model_type 'evil', and the code that it names is never run \(auto_map: .*evil\.C",
        ),
        ({"model_type": None}, "transformers has no model_type None"),
        ({"model_type": "pooled-encoder", "encoder": {"model_type": "evil", "auto_map": CODE}}, "known encoder"),
        ({"model_type": "bert"}, ""),  # transformers has this family, so its own code is used
        ({"transformers_weights": "adapter_model.bin", "auto_map": None}, ""),
        ({"custom_pipelines": {"text-classification": {"impl": "evil.Pipeline"}}}, ""),
    ],
)
def test_no_code_of_a_folder_is_ever_run(foreign: Path, tmp_path: Path, config: dict[str, Any], message: str) -> None:
    mark = tmp_path / "mark"
    (foreign / "evil.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    for name in ("pytorch_model.bin", "adapter_model.bin"):
        (foreign / name).write_bytes(pickle.dumps(Evil(mark)))
    edit_config(foreign, **{"auto_map": CODE, **config})
    words = json.loads((foreign / "tokenizer_config.json").read_text())
    names = {"auto_map": {"AutoTokenizer": ["evil.Slow", "other/one--evil.Fast"]}, "tokenizer_class": "EvilTokenizer"}
    (foreign / "tokenizer_config.json").write_text(json.dumps({**words, **names}))
    for load in (
        load_trained,
        read_head,
        lambda each: load_pretrained(each, SPEC),
        lambda each: load_encoder(each, 32),
    ):
        if message:
            with pytest.raises(BadInput, match=message):
                load(foreign)
        else:
            load(foreign)
    assert not mark.exists()
    if not message:  # what is trained from the folder names none of its code either
        model = load_pretrained(foreign, SPEC)
        model.save(tmp_path / "model")
        copy_tokenizer(foreign, tmp_path / "model", model, 32)
        saved = (tmp_path / "model").glob("*.json")
        assert not any("evil" in file.read_text() for file in saved)


def test_an_adapter_and_quantized_weights_are_not_ignored(foreign: Path) -> None:
    edit_config(foreign, quantization_config={"quant_method": "awq"})
    with pytest.raises(BadInput, match=r"config\.json: quantization_config says that the weights are quantized"):
        load_trained(foreign)
    (foreign / "adapter_config.json").write_text("{}")
    with pytest.raises(BadInput, match=r"adapter_config\.json is of an adapter, which is not applied: merge it into"):
        load_trained(foreign)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id2label": {"1": "a", "2": "b"}}, "the ids of id2label are 1, 2, but .* numbered without gaps: 0, 1"),
        ({"id2label": {"a": 0, "b": 1}}, "the ids of id2label are a, b"),
        ({"id2label": {"0": "a", "00": "b"}}, "the ids of id2label are 0, 00"),
        ({"id2label": {}}, "the ids of id2label are missing"),
        ({"id2label": {"0": "a", "1": None}}, r"id2label\.1.* is None: Input should be a valid"),
        ({"id2label": {"0": "a", "1": True}}, r"id2label\.1.* is True: Input should be a valid"),
        ({"id2label": ["a", "b"]}, "id2label is .*valid dictionary"),
        ({"id2label": {"0": "a", "1": "a"}}, "id2label has the name 'a' 2 times"),
        ({"id2label": {"0": "1", "1": 1}}, "id2label has the name '1' 2 times"),
        ({"id2label": {"0": "a", "1": " "}}, "id2label has the name ' ' 1 times"),
        ({"label2id": {"positive": 0, "negative": 1}}, "id2label has 'negative' as label 0, and label2id as label 1"),
        ({"num_labels": 3}, "num_labels is 3, but id2label has 2 names"),
        ({"num_labels": "2"}, "num_labels is '2': Input should be a valid integer"),
        ({"problem_type": "regression"}, "problem_type is regression, but there are 2 outputs"),
        ({"problem_type": "ranking"}, "problem_type is 'ranking'"),
        ({"id2label": {"0": "a"}, "label2id": {}, "problem_type": "single_label_classification"}, "a single label"),
        ({"problem_type": "multi_label_classification", "thresholds": [0.5]}, "thresholds has 1 values for 2 labels"),
        ({"problem_type": "multi_label_classification", "thresholds": [0.5, 2]}, r"thresholds\.1 is 2"),
        ({"score_range": [1, 1]}, "score_range is .*the lowest score comes first"),
        ({"cleaning": ["stem"]}, "there is no cleaning rule 'stem'"),
        ({"texts": 3}, "texts is 3: Input should be 1 or 2"),
        ({"window_stride": -1}, "window_stride is -1"),
        ({"architectures": None}, "does not describe a trained head, because architectures is None"),
        ({"architectures": [None]}, r"because architectures is \[None\]"),
        ({"num_hidden_layers": 1}, r"has 16 weights that the model .* for example bert\.encoder\.layer\.1"),
    ],
)
def test_a_head_that_does_not_say_what_it_predicts(foreign: Path, values: dict[str, Any], message: str) -> None:
    edit_config(foreign, **{"label2id": None, **values})
    with pytest.raises(BadInput, match=message) as refused:
        load_trained(foreign)
    assert str(foreign) in str(refused.value)


def test_a_key_that_occurs_twice(foreign: Path) -> None:
    file = foreign / "config.json"
    file.write_text(file.read_text().replace('"id2label": {', '"id2label": {"0": "other", '))
    with pytest.raises(BadInput, match="the key '0' occurs twice"):
        read_head(foreign)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"id2label": {"1": 1, "0": 0}, "label2id": None}, ("0", "1")),
        ({"problem_type": None, "output_attentions": True, "return_dict": False}, ("negative", "positive")),
        ({"id2label": None, "label2id": None, "num_labels": 2}, ("LABEL_0", "LABEL_1")),
        ({"thresholds": None, "cleaning": None, "torchscript": True}, ("negative", "positive")),
    ],
)
def test_a_head_of_other_origin_is_read(foreign: Path, values: dict[str, Any], expected: tuple[str, ...]) -> None:
    file = foreign / "config.json"
    changed = {**json.loads(file.read_text()), **values}
    file.write_text(json.dumps({key: value for key, value in changed.items() if value is not None}))
    head = load_trained(foreign).spec
    assert (head, head.label_names, head.kind) == (read_head(foreign), expected, "classification")


def test_weights_of_other_heads_and_poolers_may_be_there(foreign: Path) -> None:
    weights = load_file(foreign / "model.safetensors")
    save_file({**weights, "cls.predictions.bias": torch.zeros(2)}, foreign / "model.safetensors", {"format": "pt"})
    load_trained(foreign)
    save_file({**weights, "classifier.gate": torch.zeros(2)}, foreign / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadInput, match=r"has 1 weights that the model .* for example classifier\.gate"):
        load_trained(foreign)
    load_encoder(foreign, 32)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("gpt2", {"pad_token_id": 1}),
        ("gpt2", {"pad_token_id": None}),
        ("fnet", {}),  # computes Fourier transforms over the padding
        ("convbert", {"embedding_size": 8}),  # and this convolutions
    ],
)
def test_a_model_whose_answers_depend_on_the_padding(tmp_path: Path, kind: str, values: dict[str, Any]) -> None:
    names = {0: "negative", 1: "positive"}
    config = AutoConfig.for_model(kind, **SMALL, n_inner=16, head_ratio=1, **values, id2label=names)
    folder = save_foreign(tiny_encoder(tmp_path), config)
    message = rf"the model in {tmp_path} \({kind}\) cannot be used: choose another model"
    for load in (load_trained, lambda each: load_pretrained(each, SPEC)):
        with pytest.raises(BadInput, match=message):
            load(folder)


def test_a_decoder_that_knows_the_padding_is_loaded(tmp_path: Path) -> None:
    values: dict[str, Any] = {"vocab_size": len(WORDS), "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 64}
    model = GPT2ForSequenceClassification(GPT2Config(**values, pad_token_id=0, bos_token_id=2, eos_token_id=3))
    model.save_pretrained(tiny_encoder(tmp_path))
    assert load_trained(tmp_path).spec.max_length == 64


@pytest.mark.parametrize("limit", ["512", 0, -1, True, [2]])
def test_a_limit_of_tokens_that_is_no_number(foreign: Path, limit: Any) -> None:
    limit_tokens(foreign, limit)
    with pytest.raises(BadInput, match=r"tokenizer_config\.json: model_max_length is .* write the maximum number"):
        read_head(foreign)


def test_a_model_without_any_limit_of_tokens(tmp_path: Path) -> None:
    names, sizes = {0: "negative", 1: "positive"}, {"d_model": 8, "n_layer": 2, "n_head": 2, "d_inner": 16}
    config = AutoConfig.for_model("xlnet", vocab_size=len(WORDS), **sizes, id2label=names)
    folder = save_foreign(tiny_encoder(tmp_path), config)
    with pytest.raises(BadInput, match=r"does not say how long an input may be: write .* as model_max_length"):
        read_head(folder)
    limit_tokens(folder, 1e30)
    with pytest.raises(BadInput, match="does not say how long an input may be"):
        load_trained(folder)
    limit_tokens(folder, 48)
    assert read_head(folder).max_length == 48


def limit_tokens(folder: Path, limit: Any) -> None:
    """Set the limit of a folder's tokenizer."""
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_max_length": limit}))


def test_a_tokenizer_whose_ids_have_gaps(foreign: Path) -> None:
    values = json.loads((foreign / "tokenizer.json").read_text())
    values["model"]["vocab"]["word39"] = 99
    (foreign / "tokenizer.json").write_text(json.dumps(values))
    with pytest.raises(BadInput, match=r"the tokenizer has 100 words, but the encoder only \d+\. tokenizer\.json"):
        load_trained(foreign)
