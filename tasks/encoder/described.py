"""What the config.json of a model's folder says, read as data: no code that a folder names is ever loaded.

This module imports neither torch nor transformers, because the service has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from include.glue import Kind
from include.stages import BadInput
from include.text import shorten
from tasks.encoder.cleaning import check_rules
from tasks.encoder.spec import kind_of

CONFIG = "config.json"
#: The keys with which a folder names code of its own, or of a repository on the hub.
CODE = ("auto_map", "custom_pipelines")
#: What config.json must not decide: where the weights are, with which kernels and patches they are used, and in what
#: form a model returns its outputs.
_NOT_READ = (
    *CODE, "transformers_weights", "attn_implementation", "_attn_implementation", "experts_implementation",
    "_experts_implementation", "fusion_config", "distributed_config", "return_dict", "use_return_dict",
    "output_hidden_states", "output_attentions", "torchscript",
)  # fmt: skip
_HEAD = "ForSequenceClassification"


class DescribedHead(BaseModel):
    """The keys of config.json that say what the outputs of a head mean.

    Attributes:
        id2label: The names of the labels by their ids, which are 0, 1, 2 and so on. A number becomes text.
        label2id: The same the other way round. transformers does not use it, so it is only checked.
        num_labels: The number of outputs. It is only needed if there are no names.
        problem_type: The kind of task; None for a classification, or for a regression if there is one output.
        score_range: The lowest and highest score of a regression.
        thresholds: The probability from which each label of a multi-label model is predicted.
        cleaning: The rules that clean the texts.
        texts: The number of texts in a row.
        window_stride: The number of tokens that neighboring windows of a long text share.
    """

    model_config = ConfigDict(strict=True)

    id2label: dict[str, str | int] | None = None
    label2id: Any = None
    num_labels: Annotated[int, Field(ge=1)] | None = None
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None
    score_range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    thresholds: list[Annotated[float, Field(ge=0, le=1)]] | None = None
    cleaning: list[str] | None = None
    texts: Literal[1, 2] | None = None
    window_stride: Annotated[int, Field(ge=0)] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the outputs in the order of their ids; transformers' own if there are none."""
        if self.id2label is None:
            return [f"LABEL_{number}" for number in range(self.num_labels or 2)]
        return [str(self.id2label[key]) for key in sorted(self.id2label, key=int)]

    @property
    def kind(self) -> Kind:
        """The kind of task."""
        return kind_of(self.problem_type, len(self.names))

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if self.id2label is not None:
            expected = [str(number) for number in range(max(1, len(self.id2label)))]
            if set(self.id2label) != set(expected):
                raise ValueError(
                    f"the ids of id2label are {', '.join(self.id2label) or 'missing'}, but the outputs of a model are "
                    f"numbered without gaps: {', '.join(expected)}"
                )
        names = self.names
        for name in names:
            if not name.strip() or names.count(name) > 1:
                raise ValueError(f"id2label has the name {name!r} {names.count(name)} times: each label needs its own")
        if self.num_labels not in (None, len(names)):
            raise ValueError(f"num_labels is {self.num_labels}, but id2label has {len(names)} names")
        told = self.label2id if isinstance(self.label2id, dict) else {}
        for number, name in enumerate(names):
            if str(told.get(name, number)) != str(number):
                raise ValueError(f"id2label has {name!r} as label {number}, and label2id as label {told[name]!r}")
        return self

    @model_validator(mode="after")
    def _kind_fits(self) -> Self:
        outputs = len(self.names)
        if self.problem_type == "regression" and outputs > 1:
            raise ValueError(f"problem_type is regression, but there are {outputs} outputs: only one is supported")
        if self.problem_type == "single_label_classification" and outputs == 1:
            raise ValueError("problem_type is single_label_classification, but there is a single label")
        if self.score_range is not None and not self.score_range[0] < self.score_range[1]:
            raise ValueError(f"score_range is {self.score_range}: the lowest score comes first")
        if self.kind == "multilabel" and self.thresholds and len(self.thresholds) != outputs:
            raise ValueError(f"thresholds has {len(self.thresholds)} values for {outputs} labels")
        check_rules(self.cleaning or ())
        return self


def read_values(folder: Path) -> dict[str, Any]:
    """Return the content of config.json, without the keys that this project leaves to no folder.

    Raises:
        BadInput: If the file is missing or no JSON object, or if a key occurs twice.
    """
    file = folder / CONFIG
    if not file.is_file():
        raise BadInput(f"{file} is missing: the folder of an encoder must contain this file")
    with bad_input_for(f"{file} is not the configuration of a known encoder"):
        values = _without_code(json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_object))
        if not isinstance(values, dict):
            raise ValueError("it is no JSON object")
    return values


def named_code(folder: Path) -> str:
    """Return what config.json names as code; "" if nothing. The folder has been read before."""
    values = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return ", ".join(f"{key}: {json.dumps(values[key])}" for key in CODE if values.get(key))


def has_head(values: Mapping[str, Any]) -> bool:
    """Return whether the architecture that config.json names has a head for sequence classification."""
    named = values.get("architectures")
    return isinstance(named, list) and any(isinstance(name, str) and name.endswith(_HEAD) for name in named)


def described_head(folder: Path, values: Mapping[str, Any]) -> DescribedHead:
    """Return what config.json says of the head.

    Args:
        folder: The folder of the model, for messages.
        values: The content of its config.json.

    Raises:
        BadInput: If there is no head, or if it does not say which output means what.
    """
    file = folder / CONFIG
    if not has_head(values):
        named = shorten(repr(values.get("architectures")))
        raise BadInput(
            f"{file} does not describe a trained head, because architectures is {named} and names no ...{_HEAD}: "
            "choose a model that was fine-tuned for classification or regression"
        )
    try:
        return DescribedHead.model_validate({name: values.get(name) for name in DescribedHead.model_fields})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        what = f"{place} is {shorten(repr(first['input']))}: " if place else ""
        why = first["msg"].removeprefix("Value error, ")
        raise BadInput(f"{file}: {what}{why}. Correct it as the model was trained") from error


@contextmanager
def bad_input_for(what: str) -> Iterator[None]:
    """Raise BadInput for any error within, because transformers has no class of errors for damaged files."""
    try:
        yield
    except (MemoryError, BadInput):
        raise
    except Exception as error:
        message = shorten(" ".join(str(error).split()))
        raise BadInput(f"{what} ({type(error).__name__}: {message})") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"the key {twice!r} occurs twice")
    return values


def _without_code(value: Any) -> Any:
    """Return a JSON value without the keys that are not read, at any depth."""
    if isinstance(value, dict):
        return {key: _without_code(one) for key, one in value.items() if key not in _NOT_READ}
    return [_without_code(one) for one in value] if isinstance(value, list) else value
