"""Load models from folders in transformers' format, and say clearly what is wrong with a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from include.stages import BadInput
from include.written import shorten
from tasks.encoder.cleaning import check_rules
from tasks.encoder.models import Classifier, EncoderWithHead, head_modules
from tasks.encoder.padding_free import first_position
from tasks.encoder.pooled_encoder import PooledEncoderConfig, PooledEncoderForSequenceClassification
from tasks.encoder.spec import BASE_MODEL, CLEANING, TEXTS, THRESHOLDS, WINDOW_STRIDE, HeadSpec
from tasks.encoder.text_cnn import TextCNNConfig, TextCNNForSequenceClassification, TextCNNModel
from tasks.encoder.tfidf import TfidfConfig, TfidfForSequenceClassification

transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # _load checks what a load reports
transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
# With these, the class is loaded from this repository instead of from the file in the model's folder.
for _config, _model in (
    (PooledEncoderConfig, PooledEncoderForSequenceClassification),
    (TfidfConfig, TfidfForSequenceClassification),
    (TextCNNConfig, TextCNNForSequenceClassification),
):
    AutoConfig.register(_config.model_type, _config)
    AutoModelForSequenceClassification.register(_config, _model)
AutoModel.register(TextCNNConfig, TextCNNModel)
#: Values of an encoder's configuration that the model made of it must not have.
_OF_ANOTHER_MODEL = (
    "_name_or_path", "architectures", "auto_map", "dtype", "id2label", "label2id", "problem_type", "score_range",
    THRESHOLDS, CLEANING, TEXTS, WINDOW_STRIDE, BASE_MODEL, "classifier_dropout", "transformers_version",
)  # fmt: skip
_TOLERANCE = 1e-2  # for logits of random heads, whose magnitude is 0.1 to 1; a convolution over padding costs 1e-3
_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def load_pretrained(folder: Path, spec: HeadSpec) -> Classifier:
    """Load a pretrained encoder and add a head.

    The weights of the head are drawn from torch's generator, unless the folder contains a model whose head predicts
    the same labels or the same range of scores, and pools in the same way. In that case its head is kept.

    Args:
        folder: the folder of the encoder.
        spec: the head.

    Returns:
        The model in training mode.

    Raises:
        BadInput: if files are missing or damaged, do not fit one another or do not allow inputs of spec.max_length
            tokens, or if the encoder cannot be used with this head.
    """
    config = _read_config(folder)
    if isinstance(config, TfidfConfig):
        raise BadInput(f"{folder} contains a model on TF-IDF, which has no layers to train: choose an encoder")
    if _has_head(config) and HeadSpec.of(config, spec.max_length).meaning == spec.meaning:
        classifier = Classifier.of_saved(_load(AutoModelForSequenceClassification, folder, config), spec)
        _describe(classifier.model, spec)
    else:
        classifier = add_head(_load_encoder(folder, config), spec)
    _check_fit(folder, classifier.encoder, spec.max_length)
    return classifier.train()


def add_head(encoder: PreTrainedModel, spec: HeadSpec) -> Classifier:
    """Add a head to an encoder. Its weights are drawn from torch's generator.

    Raises:
        BadInput: if transformers has no head for the encoder's family, or the encoder cannot be used with this head.
    """
    kind = encoder.config.model_type
    with _bad_input_for(f"transformers has no head for this encoder ({kind}): write model.pooling: mean"):
        model: Any = AutoModelForSequenceClassification.from_config(_config_with(encoder, spec))  # type: ignore[no-untyped-call]
    _exchange_poolers(encoder, model.base_model)
    setattr(model, model.base_model_prefix, encoder)
    _describe(model, spec)
    classifier = Classifier(model, spec)
    _check_head(classifier)
    return classifier


def load_trained(folder: Path) -> Classifier:
    """Load a model that the stage train wrote.

    Returns:
        The model in evaluation mode.

    Raises:
        BadInput: if files are missing or damaged.
    """
    config = _config_of_trained(folder)
    model = _load(AutoModelForSequenceClassification, folder, config)
    return Classifier.of_saved(model, _head(folder, model)).eval()


def read_head(folder: Path) -> HeadSpec:
    """Return the head of a model that the stage train wrote, without loading its weights.

    Raises:
        BadInput: if files are missing or damaged.
    """
    config = _config_of_trained(folder)
    with _bad_input_for(f"{folder / 'config.json'} does not describe a model"), torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    return _head(folder, model)


def load_encoder(folder: Path, max_length: int) -> PreTrainedModel:
    """Load a pretrained encoder without a head.

    Args:
        folder: the folder of the encoder.
        max_length: maximum length of an input in tokens.

    Returns:
        The encoder in fp32 and evaluation mode.

    Raises:
        BadInput: if files are missing or damaged, do not fit one another or do not allow inputs of max_length tokens.
    """
    encoder = _load_encoder(folder, _read_config(folder))
    _check_fit(folder, encoder, max_length)
    return encoder


def check_encoder(folder: Path, max_length: int) -> None:
    """Check that an encoder allows inputs of max_length tokens, without loading its weights.

    Raises:
        BadInput: if it does not, or if its files are damaged or do not fit one another.
    """
    config = _read_config(folder)
    with _bad_input_for(f"{folder / 'config.json'} does not describe an encoder"), torch.device("meta"):
        pooled = isinstance(config, PooledEncoderConfig)
        model = (AutoModelForSequenceClassification if pooled else AutoModel).from_config(config)  # type: ignore[no-untyped-call]
    _check_fit(folder, model.base_model if pooled else model, max_length)


def copy_tokenizer(source: Path, target: Path, model: EncoderWithHead, max_length: int) -> None:
    """Copy the tokenizer of one model's folder to another, in the format of AutoTokenizer.

    Args:
        source: the folder with the tokenizer.
        target: the folder to copy it to.
        model: the model that the copy is for. It determines whether the copy returns the segments of pairs.
        max_length: maximum length of an input in tokens, which the copy truncates inputs to where it is asked to.
    """
    inputs = ["input_ids", *(["token_type_ids"] if model.segments else []), "attention_mask"]
    _tokenizer(source, model_max_length=max_length, model_input_names=inputs).save_pretrained(target)


def _has_head(config: Any) -> bool:
    architectures = getattr(config, "architectures", None) or []
    return any(name.endswith("ForSequenceClassification") for name in architectures)


def _config_of_trained(folder: Path) -> Any:
    config = _read_config(folder)
    if not _has_head(config):
        raise BadInput(f"{folder / 'config.json'} does not describe a trained head: run the stage train again")
    return config


def _head(folder: Path, model: PreTrainedModel) -> HeadSpec:
    limit, positions = _tokenizer(folder).model_max_length, _positions(cast(PreTrainedModel, model.base_model))
    # A tokenizer that sets no limit names a very large one.
    spec = HeadSpec.of(model.config, limit if positions is None else min(limit, positions))
    with _bad_input_for(f"{folder / 'config.json'} is of another version of this project"):
        check_rules(spec.cleaning)
    return spec


def _load_encoder(folder: Path, config: Any) -> PreTrainedModel:
    if isinstance(config, PooledEncoderConfig):
        return cast(PreTrainedModel, _load(AutoModelForSequenceClassification, folder, config).base_model)
    return _load(AutoModel, folder, config)


def _config_with(encoder: PreTrainedModel, spec: HeadSpec) -> Any:
    """Return the configuration of the encoder with the head, without what the folder says of another head."""
    values = {name: value for name, value in encoder.config.to_dict().items() if name not in _OF_ANOTHER_MODEL}
    if spec.pooling != "native":
        return PooledEncoderConfig(values, spec.pooling, **spec.config())
    return type(encoder.config)(**values, **spec.config())


def _exchange_poolers(encoder: Any, base: Any) -> None:
    """Give the encoder the pooler of a base model that it is to replace, unless both have one, or neither."""
    used, own = getattr(base, "pooler", None), getattr(encoder, "pooler", None)
    if (used is None) != (own is None):
        encoder.pooler = used  # A pooler whose output is not used would only take memory.


def _describe(model: PreTrainedModel, spec: HeadSpec) -> None:
    """Write the head into the model's configuration, and set its dropout, which few families read from there."""
    for name, value in spec.config().items():
        setattr(model.config, name, value)
    for part in head_modules(model).values():
        if isinstance(part, nn.Dropout):
            part.p = spec.dropout


@torch.no_grad()
def _check_head(classifier: Classifier) -> None:
    """Raise BadInput if the logits of a row depend on the padding behind it, or cannot be computed at all.

    The heads of decoders such as GPT-2 look for the last token before the padding, whose id must be theirs.
    """
    encoder, spec, training = classifier.encoder, classifier.spec, classifier.training
    kind, other = encoder.config.model_type, "mean" if spec.pooling == "native" else "native"
    refusal = f"the encoder ({kind}) cannot be used with model.pooling: {spec.pooling}: write model.pooling: {other}"
    with _bad_input_for(f"{refusal}, or choose another encoder"):
        if spec.score_range is not None and classifier.output_layer.bias is None:
            raise ValueError("the head has no bias, so it cannot predict scores in a range")
        lengths = (2, 3, 4, 6)
        ids = (torch.arange(2, 26) * (encoder.config.vocab_size // 26)).view(len(lengths), 6)
        mask = (torch.arange(6) < torch.tensor(lengths)[:, None]).long()
        classifier.eval()
        together = classifier(ids * mask, mask)
        alone = [classifier(ids[row, None, :n], mask[row, None, :n]) for row, n in enumerate(lengths)]
        if not torch.allclose(together, torch.cat(alone), rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
            raise ValueError("the padding of a batch changes its logits")
    classifier.train(training)


def _read_config(folder: Path) -> Any:
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        if not (folder / name).is_file():
            raise BadInput(f"{folder / name} is missing: the folder of an encoder must contain this file")
    with _bad_input_for(f"{folder / 'config.json'} is not the configuration of a known encoder"):
        config = AutoConfig.from_pretrained(folder, **_LOCAL)
    if config.is_encoder_decoder:
        raise BadInput(
            f"{folder} contains an encoder-decoder model ({config.model_type}): choose a model without a decoder"
        )
    return config


def _load(kind: Any, folder: Path, config: Any) -> PreTrainedModel:
    """Load a model of one of transformers' auto classes. Only the weights of an encoder's pooler may be missing."""
    weights = f"{folder / 'model.safetensors'} cannot be read into the model that config.json describes"
    with _bad_input_for(f"{weights}: fetch the model again"):
        model, report = kind.from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **_LOCAL
        )  # fmt: skip
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise BadInput(f"{folder / 'model.safetensors'} lacks {len(missing)} weights, for example {missing[0]}: "
                       "use the file that belongs to config.json")  # fmt: skip
    return cast(PreTrainedModel, model)


@contextmanager
def _bad_input_for(what: str) -> Iterator[None]:
    """Raise BadInput for any error within, because transformers has no class of errors for damaged files."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        message = shorten(" ".join(str(error).split()))
        raise BadInput(f"{what} ({type(error).__name__}: {message})") from error


def _tokenizer(folder: Path, **values: Any) -> Any:
    # AutoTokenizer would build another tokenizer than that of tokenizer.json for some of transformers' classes.
    with _bad_input_for(f"{folder} does not contain a valid tokenizer: fetch the model again"):
        return PreTrainedTokenizerFast.from_pretrained(folder, **values, **_LOCAL)


def _check_fit(folder: Path, encoder: Any, max_length: int) -> None:
    words = len(_tokenizer(folder))
    if words > encoder.config.vocab_size:
        raise BadInput(f"{folder}: the tokenizer has {words} words, but the encoder only {encoder.config.vocab_size}. "
                       "tokenizer.json belongs to another model: fetch the model again")  # fmt: skip
    positions = _positions(encoder)
    if positions is not None and max_length > positions:
        raise BadInput(
            f"preprocessing.max_length is {max_length}, but the encoder in {folder} has {positions} positions: "
            f"write preprocessing.max_length: {positions} or less"
        )


def _positions(encoder: PreTrainedModel) -> int | None:
    """Return the maximum length of an input in tokens, or None if the encoder sets no limit."""
    limit = getattr(encoder.config, "max_position_embeddings", None)
    return None if limit is None or limit <= 0 else limit - first_position(encoder)
