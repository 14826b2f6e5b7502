"""Load models from folders in transformers' format.

Functions raise BadInput, with the file and a remedy, if files are missing or damaged, do not fit one another, or cannot
be used as asked.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from include.stages import BadInput
from tasks.encoder.models import WEIGHTS, Classifier, EncoderWithHead, head_modules
from tasks.encoder.padding_free import first_position
from tasks.encoder.pooled_encoder import PooledEncoderConfig, PooledEncoderForSequenceClassification
from tasks.encoder.spec import (
    BASE_MODEL,
    CODE,
    CONFIG,
    TEMPERATURE,
    THRESHOLDS,
    HeadSpec,
    bad_input_for,
    described_head,
    has_head,
    read_values,
)
from tasks.encoder.text_cnn import TextCNNConfig, TextCNNForSequenceClassification, TextCNNModel
from tasks.encoder.tfidf import TfidfConfig, TfidfForSequenceClassification

transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # _load_weights checks what a load reports
transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
# Only these classes are loaded for the models of this project, never the files next to the weights.
for _config, _model in (
    (PooledEncoderConfig, PooledEncoderForSequenceClassification),
    (TfidfConfig, TfidfForSequenceClassification),
    (TextCNNConfig, TextCNNForSequenceClassification),
):
    AutoConfig.register(_config.model_type, _config)
    AutoModelForSequenceClassification.register(_config, _model)
AutoModel.register(TextCNNConfig, TextCNNModel)
_TOKENIZER = "tokenizer.json"
#: transformers would add the weights of an adapter that this file describes.
_ADAPTER = "adapter_config.json"
#: The longest row of a table of tokens, which has the lengths in 16 bits.
_LONGEST = 2**16 - 1
#: Values of an encoder's configuration that the model made of it must not have.
_OF_ANOTHER_MODEL = (
    "_name_or_path", "architectures", "auto_map", "dtype", "id2label", "label2id", "problem_type", "score_range",
    THRESHOLDS, TEMPERATURE, "cleaning", "texts", "window_stride", BASE_MODEL, "classifier_dropout",
    "transformers_version",
)  # fmt: skip
#: What the padding of a batch may change in the logits, as a share of how much they differ between rows. In fp32,
#: encoders that leave padding out have 1e-6; convolutions over padding (ConvBERT, Nystromformer) have 1e-3 and more.
_TOLERANCE = 1e-4
#: What it may change anyhow: if a model has collapsed, its logits differ between rows by no more than rounding (2e-7).
_NOISE = 4e-7
#: The tokens of the rows that are compared.
_LENGTHS = (2, 3, 5, 24)


def load_pretrained(folder: Path, spec: HeadSpec) -> Classifier:
    """Load a pretrained encoder, in training mode, and add a head for inputs of spec.max_length tokens.

    The weights of the head are drawn from torch's generator, unless the folder contains a model whose head has the same
    meaning: then this head is kept.
    """
    config = _read_config(folder)
    if isinstance(config, TfidfConfig):
        raise BadInput(f"{folder} contains a model on TF-IDF, which has no layers to train: choose an encoder")
    if has_head(config.to_dict()) and _head_of(folder, config, spec.max_length).meaning == spec.meaning:
        classifier = _with_own_head(folder, _load_weights(AutoModelForSequenceClassification, folder, config), spec)
        _describe(classifier.model, spec)
    else:
        classifier = add_head(_load_encoder(folder, config), spec)
    _check_fit(folder, classifier.encoder, spec.max_length)
    return classifier.train()


def add_head(encoder: PreTrainedModel, spec: HeadSpec) -> Classifier:
    """Add a head, whose weights are drawn from torch's generator, to an encoder that can be used with it."""
    kind = encoder.config.model_type
    values = {name: value for name, value in encoder.config.to_dict().items() if name not in _OF_ANOTHER_MODEL}
    with bad_input_for(f"transformers has no head for this encoder ({kind}): write model.pooling: mean"):
        if spec.pooling == "native":
            config: Any = type(encoder.config)(**values, **spec.config())
        else:
            config = PooledEncoderConfig(values, spec.pooling, **spec.config())
        model: Any = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    used, own = getattr(model.base_model, "pooler", None), getattr(encoder, "pooler", None)
    if (used is None) != (own is None):
        encoder.pooler = used  # type: ignore[assignment]  # one whose output is not used would only take memory
    setattr(model, model.base_model_prefix, encoder)
    _describe(model, spec)
    classifier, other = Classifier(model, spec), "mean" if spec.pooling == "native" else "native"
    _check_answers(
        classifier,
        f"the encoder ({kind}) cannot be used with model.pooling: {spec.pooling}: write model.pooling: {other}, or "
        "choose another encoder",
    )
    return classifier


def load_trained(folder: Path) -> Classifier:
    """Load a model with a trained head, of the stage train or of other origin, in evaluation mode."""
    config = _read_config(folder, trained=True)
    model = _load_weights(AutoModelForSequenceClassification, folder, config)
    classifier = _with_own_head(folder, model, _head(folder, model)).eval()
    _check_fit(folder, classifier.encoder, classifier.spec.max_length)
    return classifier


def read_head(folder: Path) -> HeadSpec:
    """Return the head of a model as load_trained does, without loading its weights."""
    config = _read_config(folder, trained=True)
    with bad_input_for(f"{folder / CONFIG} does not describe a model"), torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    return _head(folder, model)


def load_encoder(folder: Path, max_length: int) -> PreTrainedModel:
    """Load a pretrained encoder for inputs of max_length tokens without a head, in fp32 and evaluation mode."""
    encoder = _load_encoder(folder, _read_config(folder))
    _check_fit(folder, encoder, max_length)
    return encoder


def check_encoder(folder: Path, max_length: int) -> None:
    """Check that an encoder allows inputs of max_length tokens, without loading its weights."""
    _check_fit(folder, _encoder_without_weights(folder), max_length)


def word_embeddings_name(folder: Path, weights: Collection[str]) -> str:
    """Return which of the weights in an encoder's file are its word embeddings, [words, size]."""
    encoder = _encoder_without_weights(folder)
    words = encoder.get_input_embeddings()
    own = next((f"{name}.weight" for name, module in encoder.named_modules() if module is words), "")
    found = [name for name in weights if own and f".{name}".endswith(f".{own}")]
    if len(found) != 1:
        kind = encoder.config.model_type
        raise BadInput(f"the word embeddings of {folder / WEIGHTS} ({kind}) cannot be told, to add the terms of "
                       "model.lexicon: leave it empty, or choose another encoder")  # fmt: skip
    return found[0]


def copy_tokenizer(source: Path, target: Path, model: EncoderWithHead, max_length: int) -> None:
    """Copy a tokenizer to the folder of a model as AutoTokenizer reads it, for inputs of at most max_length tokens."""
    inputs = ["input_ids", *(["token_type_ids"] if model.segments else []), "attention_mask"]
    _open_tokenizer(source, model_max_length=max_length, model_input_names=inputs).save_pretrained(target)


def _head(folder: Path, model: PreTrainedModel) -> HeadSpec:
    return _head_of(folder, model.config, _longest_input(folder, cast(PreTrainedModel, model.base_model)))


def _head_of(folder: Path, config: Any, max_length: int) -> HeadSpec:
    spec = described_head(folder, read_values(folder)).spec(max_length)
    pooling: Any = config.pooling if isinstance(config, PooledEncoderConfig) else "native"
    return replace(spec, pooling=pooling, dropout=getattr(config, "classifier_dropout", None) or 0.0)


def _with_own_head(folder: Path, model: PreTrainedModel, spec: HeadSpec) -> Classifier:
    refusal = f"the model in {folder} ({model.config.model_type}) cannot be used: choose another model"
    with bad_input_for(refusal):
        classifier = Classifier.of_saved(model, spec)
    _check_answers(classifier, refusal)
    return classifier


def _load_encoder(folder: Path, config: Any) -> PreTrainedModel:
    if isinstance(config, PooledEncoderConfig):
        return cast(PreTrainedModel, _load_weights(AutoModelForSequenceClassification, folder, config).base_model)
    return _load_weights(AutoModel, folder, config)


def _encoder_without_weights(folder: Path) -> PreTrainedModel:
    config = _read_config(folder)
    with bad_input_for(f"{folder / CONFIG} does not describe an encoder"), torch.device("meta"):
        pooled = isinstance(config, PooledEncoderConfig)
        model = (AutoModelForSequenceClassification if pooled else AutoModel).from_config(config)  # type: ignore[no-untyped-call]
    return cast(PreTrainedModel, model.base_model if pooled else model)


def _describe(model: PreTrainedModel, spec: HeadSpec) -> None:
    """Write the head into the model's configuration, and set its dropout, which few families read from there."""
    for name, value in spec.config().items():
        setattr(model.config, name, value)
    for part in head_modules(model).values():
        if isinstance(part, nn.Dropout):
            part.p = spec.dropout


@torch.no_grad()
def _check_answers(classifier: Classifier, refusal: str) -> None:
    """Raise BadInput if the logits of a row depend on the padding of its batch, or cannot be computed."""
    encoder, spec, training = classifier.encoder, classifier.spec, classifier.training
    with bad_input_for(refusal):
        if spec.score_range is not None and classifier.output_layer.bias is None:
            raise ValueError("the head has no bias, so it cannot predict scores in a range")
        longest = min(_LENGTHS[-1], _positions_of(encoder) or _LENGTHS[-1])
        lengths = torch.tensor([min(length, longest) for length in _LENGTHS])
        numbers = torch.arange(len(lengths) * longest).view(len(lengths), longest)
        ids = 2 + numbers * 7919 % max(1, encoder.config.vocab_size - 2)  # 7919 is prime, so the words differ
        mask = (numbers[0] < lengths[:, None]).long()
        classifier.eval()
        together = classifier(ids * mask, mask, ids * 0)
        alone = torch.cat([
            classifier(ids[row, None, :length], mask[row, None, :length], ids[row, None, :length] * 0)
            for row, length in enumerate(lengths)
        ])  # fmt: skip
        allowed = _TOLERANCE * (alone - alone.mean(0)).abs().max() + 1e-6 * alone.abs().max() + _NOISE
        if not torch.allclose(together, alone, rtol=0, atol=float(allowed.nan_to_num()), equal_nan=True):
            raise ValueError(
                "the padding of a batch changes the logits, so the answer to a text would depend on the other texts"
            )
    classifier.train(training)


def _read_config(folder: Path, trained: bool = False) -> Any:
    """Return the configuration of a model, without running the folder's code. If `trained`, it must have a head."""
    for name in (CONFIG, WEIGHTS, _TOKENIZER):
        if not (folder / name).is_file():
            raise BadInput(f"{folder / name} is missing: the folder of an encoder must contain this file")
    if (folder / _ADAPTER).is_file():
        raise BadInput(f"{folder / _ADAPTER} is of an adapter, which is not applied: merge it into {WEIGHTS}")
    values = read_values(folder)
    if values.get("quantization_config"):
        raise BadInput(f"{folder / CONFIG}: quantization_config says that the weights are quantized: "
                       "choose the model in full precision")  # fmt: skip
    if trained or has_head(values):
        names = dict(enumerate(described_head(folder, values).names))
        values |= {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    with bad_input_for(f"{folder / CONFIG} is not the configuration of a known encoder"):
        config = _class_of(folder, values.get("model_type")).from_dict(values)
    if config.is_encoder_decoder:
        raise BadInput(
            f"{folder} contains an encoder-decoder model ({config.model_type}): choose a model without a decoder"
        )
    return config


def _load_weights(kind: Any, folder: Path, config: Any) -> PreTrainedModel:
    """Load a model of one of transformers' auto classes in fp32. Only the weights of a pooler may be missing."""
    file = folder / WEIGHTS
    with bad_input_for(f"{file} cannot be read into the model that config.json describes: fetch the model again"):
        model, report = kind.from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True,
            local_files_only=True, trust_remote_code=False,
        )  # fmt: skip
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise BadInput(f"{file} lacks {len(missing)} weights, for example {missing[0]}: "
                       "use the file that belongs to config.json")  # fmt: skip
    # Weights of other parts, and of a pooler that the head may not use, are left out.
    inside = f"{model.base_model_prefix}."
    parts = {name for each in (model, model.base_model) for name, _ in each.named_children()} - {"pooler", inside[:-1]}
    names = report["unexpected_keys"]
    if unknown := sorted(name for name in names if name.removeprefix(inside).partition(".")[0] in parts):
        raise BadInput(f"{file} has {len(unknown)} weights that the model of config.json does not have, for example "
                       f"{unknown[0]}: use the files that belong together")  # fmt: skip
    return cast(PreTrainedModel, model)


def _open_tokenizer(folder: Path, **values: Any) -> Any:
    # AutoTokenizer would build another tokenizer than that of tokenizer.json for some of transformers' classes.
    with bad_input_for(f"{folder} does not contain a valid tokenizer: fetch the model again"):
        tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, **values, local_files_only=True)
    for key in CODE:
        tokenizer.init_kwargs.pop(key, None)  # which `save_pretrained` would write
    return tokenizer


def _longest_input(folder: Path, encoder: PreTrainedModel) -> int:
    limit, positions = _open_tokenizer(folder).model_max_length, _positions_of(encoder)
    file = folder / "tokenizer_config.json"
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 1:
        raise BadInput(f"{file}: model_max_length is {limit!r}: write the maximum number of tokens of an input")
    longest = min(limit, positions or limit)  # A tokenizer that sets no limit names a very large one.
    if longest > _LONGEST:
        raise BadInput(f"{folder} does not say how long an input may be: write the maximum number of tokens, at most "
                       f"{_LONGEST}, as model_max_length into {file.name}")  # fmt: skip
    return int(longest)


def _check_fit(folder: Path, encoder: Any, max_length: int) -> None:
    """Check that the encoder has embeddings for the tokenizer's words, and positions for max_length tokens."""
    words = 1 + max(_open_tokenizer(folder).get_vocab().values(), default=-1)
    if words > encoder.config.vocab_size:
        raise BadInput(f"{folder}: the tokenizer has {words} words, but the encoder only {encoder.config.vocab_size}. "
                       "tokenizer.json belongs to another model: fetch the model again")  # fmt: skip
    positions = _positions_of(encoder)
    if positions is not None and max_length > positions:
        raise BadInput(
            f"preprocessing.max_length is {max_length}, but the encoder in {folder} has {positions} positions: "
            f"write preprocessing.max_length: {positions} or less"
        )


def _positions_of(encoder: PreTrainedModel) -> int | None:
    """Return the maximum length of an input in tokens, or None if the encoder sets no limit."""
    limit = getattr(encoder.config, "max_position_embeddings", None)
    return None if limit is None or limit <= 0 else limit - first_position(encoder)


def _class_of(folder: Path, kind: Any) -> Any:
    if isinstance(kind, str) and kind in CONFIG_MAPPING:
        return CONFIG_MAPPING[kind]
    values = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    code = ", ".join(f"{key}: {json.dumps(values[key])}" for key in CODE if values.get(key))
    never = f", and the code that it names is never run ({code})" if code else ""
    raise ValueError(f"transformers has no model_type {kind!r}{never}: choose a model of a family that it has")
