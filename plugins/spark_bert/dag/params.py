"""The trigger form: one Airflow Param per field of the experiment, made from the experiment model.

An empty field (null or "") keeps the value of the named experiment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from airflow.sdk import Context, Param

from include.experiment import Experiment
from include.fields.base import Section
from include.named_experiments import build, load, merge, names, read
from include.stages import PIPELINE, STAGES, BadInput, flatten
from spark_bert.deployment.inputs import masters

#: The keywords of the model's JSON schema that are copied to a Param unchanged.
_RULES = (
    "minLength", "pattern", "examples", "items", "minItems", "maxItems", "additionalProperties", "propertyNames",
)  # fmt: skip
#: Those that are put where Airflow's form does not see them: it would change a number beyond its limits in silence.
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
#: What is chosen in the form for a boolean field, and its value.
_SWITCH = {"yes": True, "no": False}
#: What the form shows for the choice of an empty field.
_EMPTY = {"null": "as in the experiment"}

#: The value of a text field that removes the named experiment's text.
NOTHING = "none"

#: The sections that affect a run of the pipeline: those that its stages read, and the one that says where they run.
_PIPELINE = {part.partition(".")[0] for stage in PIPELINE for part in STAGES[stage].reads} | {"runtime"}
#: The sections and fields that people change, in the order of the form. It has all others in its last section.
_COMMON = (
    *("data.task", "data.source", "data.path", "data.columns", "data.labels", "model.kind", "model.name"),
    *("preprocessing.clean", "preprocessing.sample", "preprocessing.augment", "preprocessing.max_length"),
    *("preprocessing.long", "pretraining.text", "pretraining.epochs", "model.teacher", "distillation.text"),
    *("loss.kind", "loss.class_weights"),
    *("training.epochs", "training.batch_size", "training.learning_rate", "training.lora_rank"),
    *("training.precision", "training.ranks", "training.best_by", "training.seed"),
    *("communication.strategy", "communication.compression", "gate", "submission"),
    *("scoring.input", "scoring.table", "scoring.driver", "scoring.text", "scoring.text2", "scoring.model"),
    *("streaming.name", "streaming.source", "streaming.folder", "streaming.brokers", "streaming.topic"),
    *("streaming.text", "streaming.text2", "streaming.model", "prediction.form", "dataset.name", "dataset.drop"),
    *("retraining.start", "retraining.margin", "retraining.trial_texts", "retraining.approval", "retention"),
    *("search.minutes", "search.trials", "search.seeds", "search.space", "search.name", "runtime.spark_master"),
    *("runtime.download",),
)


def form(experiment: str = names()[0], more: Iterable[str] = (), only: Iterable[str] = ()) -> dict[str, Param]:
    """Return a Dag's params: `experiment`, and one `section.field` per field of the pipeline's sections and `more`.

    `only` names sections and fields that replace these.
    """
    params = {
        "experiment": Param(
            experiment,
            title="Experiment",
            type="string",
            enum=names(),
            section="Experiment",
            description_md=f"The named experiment to start from: {', '.join(names())}. An empty field keeps the "
            f"value of this experiment. Default: **{experiment}**.",
        )
    }
    changes = flatten(load(experiment).model_dump(mode="json", exclude_defaults=True))
    wanted = set(only) or _PIPELINE.union(more)
    fields = (key for key in _fields() if wanted & {key, key.partition(".")[0]})
    for key in sorted(fields, key=_place):
        default, schema = _fields()[key]
        section = key.partition(".")[0].capitalize() if _place(key) < len(_COMMON) else "Advanced"
        described = f"{schema['description']} Default: **{json.dumps(default)}**."
        if key in changes:
            described += f" In {experiment}: **{json.dumps(changes[key])}**."
        if _may_be_absent(key):
            described += f" Write **{NOTHING}** to remove the text of the named experiment."
        params[key] = Param(None, title=key, section=section, description_md=described, **_nullable(schema))
    return params


def resolve(params: Mapping[str, Any]) -> Experiment:
    """Return the experiment that the params of a run describe, by default on the deployment's first Spark master."""
    name = params["experiment"]
    if name not in names():
        raise BadInput(f"unknown experiment {name!r}: write one of {', '.join(names())}")
    given: dict[str, Any] = {"runtime.spark_master": masters()[0]} if masters() else {}
    for key, value in filled(params).items():
        given[key] = "" if value == NOTHING and _may_be_absent(key) else value
    del given["experiment"]
    return build(merge(read(name), given), f"experiment {name}")


def filled(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params that are not empty, with the values of what the form sends as text: `yes`, or a number."""
    return {
        key: _typed(value, key) if isinstance(value, str) else value
        for key, value in params.items()
        if value is not None and value != ""
    }


def from_form(context: Context) -> Experiment:
    """Return the experiment of a run whose params are those of `form`. Raise BadInput as `resolve` does."""
    return resolve(context["params"])


def explain(params: Mapping[str, Param]) -> str:
    """Return a Markdown table of the params and their meanings, for the Dag's page."""
    rows = (f"| `{key}` | {param.schema['description_md']} |" for key, param in params.items())
    return "\n".join(["| parameter | meaning |", "| --- | --- |", *rows])


def _place(key: str) -> int:
    section = key.partition(".")[0]
    return next((at for at, name in enumerate(_COMMON) if name in (key, section)), len(_COMMON))


def _may_be_absent(key: str) -> bool:
    return key in _fields() and _fields()[key][0] == ""


@cache
def _fields() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the default and the JSON schema of every field of the experiment, by "section.field"."""
    found = {}
    for section, info in Experiment.model_fields.items():
        model = info.annotation
        assert isinstance(model, type) and issubclass(model, Section), f"{section} is not a section"
        defaults = model().model_dump(mode="json")
        for name, schema in model.model_json_schema()["properties"].items():
            found[f"{section}.{name}"] = defaults[name], schema
    return found


def _choices(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [choice for choice in schema.get("anyOf", [schema]) if choice["type"] != "null"]


def _typed(text: str, key: str) -> Any:
    types = [choice["type"] for choice in _choices(_fields()[key][1])] if key in _fields() else []
    if types == ["boolean"]:
        return _SWITCH.get(text, text)
    return int(text) if types == ["string", "integer"] and text.isdecimal() else text


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a field in the form that Airflow's trigger form understands, with null allowed."""
    choices = _choices(schema)
    if len(choices) > 1:
        return _union(choices)
    schema = choices[0]
    if schema["type"] == "boolean":
        return _switch()
    rules = {key: schema[key] for key in _RULES if key in schema} | _limits(schema)
    rules["type"] = [schema["type"], "null"]
    if "const" in schema or "enum" in schema:
        rules["enum"] = [*schema.get("enum", [schema.get("const")]), None]
        rules["values_display"] = _EMPTY
    if "prefixItems" in schema:  # a pair: the form supports only arrays whose items have one type
        rules["items"] = {"type": schema["prefixItems"][0]["type"]}
    if "enum" in rules.get("items", {}):  # the form offers the examples of an array as choices
        rules["examples"] = rules["items"]["enum"]
    return rules


def _limits(schema: dict[str, Any]) -> dict[str, Any]:
    limits = {key: schema[key] for key in _LIMITS if key in schema}
    return {"allOf": [limits]} if limits else {}


def _union(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a field that takes a whole number or a word, which the form sends as text.

    JSON schema applies limits to numbers only, and patterns to text only. With examples, the form has a line of text
    for the field, instead of an area of it.
    """
    words = [choice["const"] for choice in choices if "const" in choice]
    (limits,) = filter(None, map(_limits, choices))
    types = [*(choice["type"] for choice in choices), "null"]
    return {**limits, "type": types, "pattern": f"^({'|'.join(words)}|[0-9]+)$", "examples": words}


def _switch() -> dict[str, Any]:
    """Return the schema of a boolean field: a choice, for the form's switches are off also where the default is true.

    Airflow's form reads `enum`. In draft 7, a validator reads only `$ref`, so true and false are also allowed.
    """
    return {
        "type": ["string", "null"], "enum": [None, *_SWITCH], "values_display": _EMPTY,
        "$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/value",
        "definitions": {"value": {"enum": [None, *_SWITCH, *_SWITCH.values()]}},
    }  # fmt: skip
