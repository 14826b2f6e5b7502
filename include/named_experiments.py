"""Read experiments by name, from YAML or JSON files or from inline JSON, and apply overrides."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from include.experiment import Experiment
from include.folders import check_file, user_path
from include.stages import BadInput
from include.text import from_json, from_yaml, shorten, shown

FOLDER = Path(__file__).parent / "experiments"
_LARGEST = 2**20  # bytes of an experiment file; all fields together take a few kilobytes
#: `section.field=value` up to the next one that does not stand in quotes, which begin where a value does.
_OVERRIDE = re.compile(
    r"""(?s)\S(?:(?<=[=\s{\[,:])(?:"[^"]*"|'[^']*')(?=[\s}\],:]|$)|.)*?(?=\s+[a-z]\w*\.\w+=|$)""",
)
_PROBLEMS = 10  # most problems of an experiment that a message lists


def names() -> list[str]:
    """Return the names of the named experiments, the default one first."""
    return ["movies", *sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "movies")]


def load(source: str, overrides: Iterable[str] = ()) -> Experiment:
    """Read an experiment by its name, from a YAML or JSON file, or from inline JSON. Raise BadInput if it is wrong.

    Overrides are texts of `section.field=value`, one or more in each, which replace values of the source.
    """
    label = "the experiment" if source.lstrip().startswith("{") else f"experiment {source}"
    return build(merge(read(source), parse_overrides(overrides)), label)


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values in texts of `section.field=value`, any number in each, by their keys.

    Everything that does not begin so belongs to the value before it, and so does everything in a value's quotes.
    """
    pieces = (piece for text in texts for piece in _OVERRIDE.findall(text.strip()))
    return dict(_parse_override(piece.strip()) for piece in pieces)


def _parse_override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or key.count(".") != 1:
        raise BadInput(
            f"cannot read the override {shown(text)}: write section.field=value, for example training.epochs=1"
        )
    section, _, field = key.partition(".")
    fields = _fields([section])
    if field in fields and fields[field].annotation is str and value[:1] not in ("'", '"'):
        return key, value
    try:
        return key, from_yaml(value)  # so that [a, b] and {a: b} have their obvious types
    except ValueError as error:
        raise BadInput(f"cannot read the value {shown(value)}: {error}") from error


def merge(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Replace some values of an experiment, {"section": {"field": value}}, by overrides, {"section.field": value}."""
    merged = {section: dict(fields) if isinstance(fields, dict) else fields for section, fields in values.items()}
    for key, value in overrides.items():
        section, _, field = key.partition(".")
        if not isinstance(merged.setdefault(section, {}), dict):
            raise BadInput(f"{section} must be a section of fields, not {shown(merged[section])}")
        merged[section][field] = value
    return merged


def build(values: Mapping[str, Any], label: str) -> Experiment:
    """Make an experiment from its values, {"section": {"field": value}}. Missing fields have their defaults.

    Raise BadInput with all problems after the label if values are wrong.
    """
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        explained = [_explain(problem) for problem in error.errors(include_url=False)]
        problems = [shorten(line, 1000) for text in explained for line in text.splitlines()]
        more = [f"and {len(problems) - _PROBLEMS} more"] if len(problems) > _PROBLEMS else []
        raise BadInput(f"{label}: {'; '.join([*problems[:_PROBLEMS], *more])}") from None


def changed(experiment: Experiment, changes: Mapping[str, Any], label: str) -> Experiment:
    """Return an experiment with other values of some fields, {"section.field": value}, checked again."""
    return build(merge(experiment.model_dump(mode="json"), changes), label)


def require_threshold(experiment: Experiment, stated: bool = False) -> Experiment:
    """Return the experiment if its gate has a threshold, else raise BadInput. Ablations need none.

    With `stated`, a task of the user's own needs an explicit one, because no person looks at each model.
    """
    if not (experiment.gate.thresholds or experiment.task.gate is not None if stated else experiment.thresholds):
        task = experiment.task
        raise BadInput(
            f"{task.name} has no threshold of its own: set gate.{task.metric}, the lowest acceptable {task.metric}"
        )
    return experiment


def _read_file(path: Path) -> dict[str, Any]:
    try:
        check_file(path, "name a YAML or JSON file, or a named experiment")
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError(f"the file has more than {_LARGEST:,} bytes, which is too large for an experiment")
        text = data.decode("utf-8-sig")
        values = from_json(text) if path.suffix == ".json" else from_yaml(text)
    except UnicodeDecodeError as error:
        raise BadInput(f"cannot read the experiment file {path}: {error}: save it as UTF-8") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the experiment file {path}: {error}") from error
    return _mapping(values, str(path))


def read(source: str) -> dict[str, Any]:
    """Return the unchecked differences from the defaults in a named experiment, a file or inline JSON."""
    if source.lstrip().startswith("{"):
        try:
            return _mapping(from_json(source), "the experiment")
        except ValueError as error:
            raise BadInput(f"the experiment is not JSON: {error}") from error
    if source in names():
        return _read_file(FOLDER / f"{source}.yaml")
    if source.endswith((".yaml", ".yml", ".json")):
        return _read_file(user_path(source))
    raise BadInput(
        f"unknown experiment {shown(source)}{_hint(source, names())}: write one of {', '.join(names())}, or the path "
        "of a YAML or JSON file"
    )


def _mapping(values: Any, label: str) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadInput(f"{label} must be a mapping of sections, not {type(values).__name__}")
    return values


def _explain(problem: Any) -> str:
    location, value = [shorten(str(part), 100) for part in problem["loc"]], problem["input"]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        *section, field = location
        known = _fields(section)
        elsewhere = [f"{name}.{field}" for name in Experiment.model_fields if field in _fields([name])]
        hint = _hint(field, known, elsewhere)
        return f"unknown key {key}{hint} (known here: {', '.join(known)})"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if problem["type"] == "string_type" and isinstance(value, int | float):
        kind = "true or false" if isinstance(value, bool) else "a number"
        return f"{key} = {shown(value)}: this must be text, but without quotes it is read as {kind}: put it in quotes"
    return f"{key} = {shown(value)}: {message[0].lower()}{message[1:]}"


def _fields(location: list[str]) -> dict[str, FieldInfo]:
    model: type[BaseModel] = Experiment
    for part in location:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return {}
        model = annotation
    return model.model_fields


def _hint(word: str, known: Iterable[str], elsewhere: Iterable[str] = ()) -> str:
    names, lower = list(known), word.lower()
    longer = [name for name in names if lower.startswith(f"{name}_")]  # f1_score
    meant = [*(longer or difflib.get_close_matches(lower, names, n=1))[:1], *elsewhere]
    return f", did you mean {' or '.join(meant)}?" if meant else ""
