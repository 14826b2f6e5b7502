"""The space of a search: for each field of the experiment, the values that are tried, with the field's own type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from include.fields.search import Range
from include.stages import STAGES, TRIED, flatten
from include.text import shown

if TYPE_CHECKING:
    from include.experiment import Experiment

Space = dict[str, Range | tuple[Any, ...]]
#: What is searched unless the experiment says otherwise.
USUAL: Space = {
    "training.learning_rate": Range(low=1e-5, high=2e-4, log=True),
    "training.epochs": Range(low=1, high=4, step=1),
    "training.batch_size": (16, 32, 64),
    "training.warmup": Range(low=0, high=0.2, step=0.02),
    "training.layer_decay": Range(low=0.7, high=1, step=0.05),
}
#: Fields that trials read and that are no settings, with the reason.
_FIXED = {
    "preprocessing.resplit": "decides which rows the trials are compared on",
    "training.evaluations": "decides how often the best model is chosen, so that more would always look better",
}


def space_of(experiment: Experiment) -> Space:
    """Return what a search of this experiment tries, with values of the fields' types."""
    asked = experiment.search.space or _fitting(experiment)
    return {
        name: entry if isinstance(entry, Range) else tuple(_value(experiment, name, value) for value in entry)
        for name, entry in asked.items()
    }


def texts_of(experiment: Experiment, field: str) -> list[str]:
    """Return the values, of a field with a text, that the experiment or trials have, without the empty one."""
    texts = space_of(experiment).get(field, (experiment.part((field,))[field],))
    assert isinstance(texts, tuple)
    return [text for text in texts if text]


def default_of(experiment: Experiment, space: Space) -> dict[str, Any] | None:
    """Return the experiment's own values of the fields in a space, or None if one of them is not in it."""
    values = experiment.part(tuple(space))
    return values if all(_contains(space[name], value) for name, value in values.items()) else None


def space_problems(experiment: Experiment) -> Iterator[str]:
    """Yield what is wrong with the experiment's space, with the remedy."""
    for name, entry in experiment.search.space.items():
        yield from (f"search.space: {problem}" for problem in _problems(experiment, name, entry))


def _problems(experiment: Experiment, name: str, entry: Range | tuple[Any, ...]) -> Iterator[str]:
    if name not in flatten(experiment.model_dump()):
        yield f"there is no field {shown(name)}: write section.field, such as training.learning_rate"
        return
    if name in _FIXED or name.endswith(".seed"):
        yield f"{name} is no setting: it {_FIXED.get(name, 'only decides which chance a trial has')}: remove it"
    elif not _is_tried(name):
        yield f"no trial reads {name}, so that all values of it are equally good: remove it"
    values = (entry.low, entry.high) if isinstance(entry, Range) else entry
    for value in values:
        try:
            found = _value(experiment, name, value)
        except ValidationError as error:
            problem = error.errors()[0]["msg"].removeprefix("Value error, ")
            yield f"{name} = {shown(value)}: {problem[0].lower()}{problem[1:]}"
            continue
        if isinstance(entry, Range) and (isinstance(found, bool) or not isinstance(found, int | float)):
            yield f"{name} is not a number, so it has no bounds: write a list of values"
            return
    if isinstance(entry, Range) and entry.step and isinstance(experiment.part((name,))[name], int) and entry.step % 1:
        yield f"{name} is a whole number, but step is {entry.step:g}: write a whole number"


def _is_tried(name: str) -> bool:
    read = {field for stage in TRIED for field in STAGES[stage].reads}
    changed = {field for stage in TRIED for field in STAGES[stage].may_change}
    return bool({name, name.partition(".")[0]} & read) and name not in changed


def _value(experiment: Experiment, name: str, value: Any) -> Any:
    """Return a value as the field has it, in JSON. Raise ValidationError if it does not fit."""
    section, _, field = name.partition(".")
    model = type(getattr(experiment, section))
    return model.model_validate({field: value}).model_dump(mode="json")[field]


def _fitting(experiment: Experiment) -> Space:
    """Return the usual space without what has no meaning for the model, or is fixed by how batches are made."""
    left_out = {"training.layer_decay"} if experiment.model.kind == "textcnn" else set()
    if experiment.batching.kind not in ("length", "static"):
        left_out.add("training.batch_size")
    return {name: entry for name, entry in USUAL.items() if name not in left_out}


def _contains(entry: Range | tuple[Any, ...], value: Any) -> bool:
    if not isinstance(entry, Range):
        return value in entry
    steps = (value - entry.low) / entry.step if entry.step else 0.0
    return bool(entry.low <= value <= entry.high and abs(steps - round(steps)) < 1e-8)
