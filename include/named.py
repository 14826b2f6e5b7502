"""Reading an experiment: by name, from a YAML file or as JSON, with overrides on top."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from include.experiment import Experiment
from include.paths import check_file, user_path
from include.stages import BadInput
from include.written import from_json, from_yaml, shorten, shown

FOLDER = Path(__file__).parent / "experiments"
_LARGEST = 2**20  # bytes of an experiment file: all fields together are a few kilobytes
_PROBLEMS = 10  # of a wrong experiment, so many are told


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
        raise BadInput(f"cannot read the override {shown(text)}: write section.field=value, as training.epochs=1")
    return key, _value(value)


def merge(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Lay {"section.field": value} over {"section": {"field": value}}."""
    merged = {section: dict(fields) if isinstance(fields, dict) else fields for section, fields in values.items()}
    for key, value in overrides.items():
        section, _, field = key.partition(".")
        if not isinstance(merged.setdefault(section, {}), dict):
            raise BadInput(f"{section} must be a section of fields, not {shown(merged[section])}")
        merged[section][field] = value
    return merged


def build(values: Mapping[str, Any], label: str) -> Experiment:
    """Check the values. Raises BadInput with one line for each thing that is wrong."""
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        problems = [shorten(_explain(problem), 1000) for problem in error.errors(include_url=False)]
        more = [f"and {len(problems) - _PROBLEMS} more"] if len(problems) > _PROBLEMS else []
        raise BadInput(f"{label}: {'; '.join([*problems[:_PROBLEMS], *more])}") from None


def read_file(path: Path) -> dict[str, Any]:
    """The mapping that a .json file holds, or a YAML file by another name. Raises BadInput for anything else."""
    try:
        check_file(path, "name a YAML or JSON file, or a named experiment")
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST:,} bytes, so it is hardly an experiment")
        text = data.decode("utf-8-sig")
        values = from_json(text) if path.suffix == ".json" else from_yaml(text)
    except UnicodeDecodeError as error:
        raise BadInput(f"cannot read the experiment file {path}: {error}: save it as UTF-8") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the experiment file {path}: {error}") from error
    return _mapping(values, str(path))


def read(source: str) -> dict[str, Any]:
    """The differences from the defaults that a name, a file or inline JSON holds, unchecked."""
    if source.lstrip().startswith("{"):
        try:
            return _mapping(from_json(source), "the experiment")
        except ValueError as error:
            raise BadInput(f"the experiment is not JSON: {error}") from error
    if source in names():
        return read_file(FOLDER / f"{source}.yaml")
    if source.endswith((".yaml", ".yml", ".json")):
        return read_file(user_path(source))
    raise BadInput(
        f"unknown experiment {shown(source)}{_hint(source, names())}: write {', '.join(names())}, or the path of a "
        "YAML or JSON file"
    )


def _mapping(values: Any, label: str) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadInput(f"{label} must be a mapping of sections, not {type(values).__name__}")
    return values


def _value(text: str) -> Any:
    """The value of an override: YAML, so that 1, 2e-5, true, [a, b] and {a: b} mean what they look like."""
    try:
        value = from_yaml(text)
    except ValueError as error:
        raise BadInput(f"cannot read the value {shown(text)}: {error}") from error
    if isinstance(value, str):  # YAML 1.1 takes 2e-5 for a word
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _explain(problem: Any) -> str:
    """One pydantic error in a person's words: key, value, remedy."""
    location, value = [shorten(str(part), 100) for part in problem["loc"]], problem["input"]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        known = _fields(location[:-1])
        return f"unknown key {key}{_hint(location[-1], known)} (known here: {', '.join(known)})"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if problem["type"] == "string_type" and isinstance(value, int | float):
        kind = "yes or no" if isinstance(value, bool) else "a number"
        return f"{key} = {shown(value)}: this must be text, and without quotes it is {kind}: put it in quotes"
    return f"{key} = {shown(value)}: {message[0].lower()}{message[1:]}"


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
