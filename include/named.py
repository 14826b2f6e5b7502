"""Reading an experiment: by name, from a YAML file or as JSON, with overrides on top."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from include.experiment import Experiment
from include.stages import BadInput

FOLDER = Path(__file__).parent / "experiments"


def names() -> list[str]:
    """The named experiments, the default one first."""
    return ["movies", *sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "movies")]


def load(source: str, overrides: Iterable[str] = ()) -> Experiment:
    """An experiment from a name, a YAML file's path or inline JSON, with `section.field=value` on top.

    Raises BadInput, saying which key is wrong and what to write instead.
    """
    values = read(source)
    values = merge(values, dict(parse_override(text) for text in overrides))
    label = "the experiment" if source.lstrip().startswith("{") else f"experiment {source}"
    return build(values, label)


def parse_override(text: str) -> tuple[str, Any]:
    """`section.field=value` as key and typed value. Raises BadInput for anything else."""
    key, equals, value = text.partition("=")
    if not equals or key.count(".") != 1:
        raise BadInput(f"cannot read the override {text!r}: write section.field=value, as training.epochs=1")
    return key, _value(value)


def merge(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Lay {"section.field": value} over {"section": {"field": value}}."""
    merged = {section: dict(fields) if isinstance(fields, dict) else fields for section, fields in values.items()}
    for key, value in overrides.items():
        section, _, field = key.partition(".")
        if not isinstance(merged.setdefault(section, {}), dict):
            raise BadInput(f"{section} must be a section of fields, not {merged[section]!r}")
        merged[section][field] = value
    return merged


def build(values: Mapping[str, Any], label: str) -> Experiment:
    """Check the values. Raises BadInput with one line for each thing that is wrong."""
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_explain(problem) for problem in error.errors(include_url=False))
        raise BadInput(f"{label}: {problems}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping. Raises BadInput for anything else."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"cannot read the experiment file {path}: {error}") from error
    return _mapping(values, str(path))


def read(source: str) -> dict[str, Any]:
    """The differences from the defaults that a name, a YAML file or inline JSON holds, unchecked."""
    if source.lstrip().startswith("{"):
        try:
            return _mapping(json.loads(source), "the experiment")
        except json.JSONDecodeError as error:
            raise BadInput(f"the experiment is not JSON: {error}") from error
    if source in names():
        return read_yaml(FOLDER / f"{source}.yaml")
    if source.endswith((".yaml", ".yml", ".json")):
        return read_yaml(Path(source))
    raise BadInput(f"unknown experiment {source!r}{_hint(source, names())}: write {', '.join(names())} or a YAML file")


def _mapping(values: Any, label: str) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadInput(f"{label} must be a mapping of sections, not {type(values).__name__}")
    return values


def _value(text: str) -> Any:
    """The value of an override: YAML, so that 1, 2e-5, true, [a, b] and {a: b} mean what they look like."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(f"cannot read the value {text!r}: {error}") from error
    if isinstance(value, str):  # YAML 1.1 takes 2e-5 for a word
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _explain(problem: Any) -> str:
    """One pydantic error in a person's words: key, value, remedy."""
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        known = _fields(location[:-1])
        return f"unknown key {key}{_hint(location[-1], known)} (known here: {', '.join(known)})"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key} = {problem['input']!r}: {message[0].lower()}{message[1:]}"


def _fields(location: list[str]) -> list[str]:
    model: type[BaseModel] = Experiment
    for part in location:
        annotation = model.model_fields[part].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def _hint(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f", did you mean {close[0]}?" if close else ""
