"""The description of a head, and config.json, which holds it, read as data without torch, which the service lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from include.glue import Kind, Task
from include.stages import BadInput
from include.text import shorten
from tasks.encoder.cleaning import check_rules

_PROBLEM_TYPES: dict[Kind, str] = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}
#: The field of config.json that holds the thresholds of a multi-label model.
THRESHOLDS = "thresholds"
#: The field of config.json that holds the temperature of a calibrated model. transformers takes one that is called
#: temperature for a setting of text generation: it does not read it, and refuses to save it.
TEMPERATURE = "calibration_temperature"
#: The field of config.json in which the stage train records the encoder of a model.
BASE_MODEL = "base_model"
CONFIG = "config.json"
#: The keys with which a folder names code of its own, or of a repository on the hub.
CODE = ("auto_map", "custom_pipelines")
#: What config.json must not decide: where the weights are, which kernels and patches they are used with, and in what
#: form a model returns its outputs.
_NOT_READ = (
    *CODE, "transformers_weights", "attn_implementation", "_attn_implementation", "experts_implementation",
    "_experts_implementation", "fusion_config", "distributed_config", "return_dict", "use_return_dict",
    "output_hidden_states", "output_attentions", "torchscript",
)  # fmt: skip
_HEAD = "ForSequenceClassification"


@dataclass(frozen=True)
class HeadSpec:
    """The head on top of an encoder: one logit per class for softmax, one per label for a sigmoid, or the score."""

    kind: Kind
    outputs: int
    pooling: Literal["native", "mean", "cls"] = "native"  # the family's own head, or a linear one on the mean or [CLS]
    dropout: float = 0.1
    max_length: int = 128  # of an input in training, in tokens
    stride: int | None = None  # tokens that neighboring windows of a long text share; None if these are truncated
    label_names: tuple[str, ...] = ()  # in the order of their ids
    score_range: tuple[float, float] | None = None  # lowest and highest score of a regression
    thresholds: tuple[float, ...] = ()  # lowest probability from which a trained multi-label model predicts each label
    temperature: float = 1.0  # that the output layer of a trained model was divided by: raw logits are that much larger
    cleaning: tuple[str, ...] = ()  # the rules (preprocessing.clean) for texts before they are tokenized
    texts: int | None = None  # in a row: 1, or 2 for pairs; None if a model of other origin does not say

    @property
    def meaning(self) -> tuple[Any, ...]:
        """What determines the shape of the head and the meaning of its outputs."""
        return self.kind, self.outputs, self.pooling, self.label_names, self.score_range

    def config(self) -> dict[str, Any]:
        """Return the values that describe the head in a model's config.json, but for what is fitted to dev."""
        names = self.label_names or tuple(f"LABEL_{number}" for number in range(self.outputs))
        names = ("score",) if self.kind == "regression" else names
        values = {
            "problem_type": _PROBLEM_TYPES[self.kind],
            "id2label": dict(enumerate(names)),
            "label2id": {name: number for number, name in enumerate(names)},
            "classifier_dropout": self.dropout,
            "cleaning": list(self.cleaning),
            "texts": self.texts,
            "window_stride": self.stride,
        }
        return values | ({"score_range": list(self.score_range)} if self.score_range else {})


class DescribedHead(BaseModel):
    """The keys of config.json that say what the outputs of a head mean, checked."""

    model_config = ConfigDict(strict=True)

    id2label: dict[str, str | int] | None = None
    label2id: Any = None  # transformers does not use it
    num_labels: Annotated[int, Field(ge=1)] | None = None  # only needed without id2label
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None
    score_range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    thresholds: list[Annotated[float, Field(ge=0, le=1)]] | None = None
    calibration_temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
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
        if self.problem_type == _PROBLEM_TYPES["multilabel"]:
            return "multilabel"
        return "regression" if len(self.names) == 1 else "classification"

    def spec(self, max_length: int) -> HeadSpec:
        """Return what labeling rows needs to know of the head of a model for inputs of this length."""
        is_score, bounds = self.kind == "regression", self.score_range
        return HeadSpec(
            kind=self.kind,
            outputs=len(self.names),
            max_length=max_length,
            stride=self.window_stride,
            label_names=() if is_score else tuple(self.names),
            score_range=(bounds[0], bounds[1]) if is_score and bounds else None,
            thresholds=tuple(self.thresholds or ()) if self.kind == "multilabel" else (),
            temperature=self.calibration_temperature or 1.0,
            cleaning=tuple(self.cleaning or ()),
            texts=self.texts,
        )

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


def check_task(task: Task, spec: HeadSpec) -> None:
    """Raise BadInput if the outputs of a trained head do not mean what the labels of a task do."""
    if spec.texts not in (None, len(task.sentences)):
        raise BadInput(
            f"it was trained on rows with {spec.texts} text(s), but those of {task.name} have {len(task.sentences)}"
        )
    if _head(spec) != _head(task):
        raise BadInput(f"it was trained for another task: its head is {_head(spec)}, but {task.name} is {_head(task)}")


def _head(of: Task | HeadSpec) -> str:
    """Describe what two heads for the same task have in common."""
    if of.score_range is None:
        return f"a {of.kind} of {of.outputs} classes ({', '.join(of.label_names)})"
    low, high = of.score_range
    return f"a {of.kind} of {low:g} to {high:g}"


def read_values(folder: Path) -> dict[str, Any]:
    """Return the content of config.json, a JSON object, without keys that a folder must not decide."""
    file = folder / CONFIG
    if not file.is_file():
        raise BadInput(f"{file} is missing: the folder of an encoder must contain this file")
    with bad_input_for(f"{file} is not the configuration of a known encoder"):
        values = _without_code(json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_object))
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
    return values


def has_head(values: Mapping[str, Any]) -> bool:
    """Return whether the architecture that config.json names has a head for sequence classification."""
    named = values.get("architectures")
    return isinstance(named, list) and any(isinstance(name, str) and name.endswith(_HEAD) for name in named)


def described_head(folder: Path, values: Mapping[str, Any]) -> DescribedHead:
    """Return what config.json says of the head; raise BadInput if it does not say which output means what."""
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
    """Raise BadInput for any error in the block, because transformers has no error class for damaged files."""
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
    if isinstance(value, dict):
        return {key: _without_code(one) for key, one in value.items() if key not in _NOT_READ}
    return [_without_code(one) for one in value] if isinstance(value, list) else value
