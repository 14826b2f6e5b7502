"""The trigger form: one Airflow Param for every field of a pipeline's experiment, made from the experiment model.

An empty field (null or "") keeps what the named experiment says, so a run is a name and its differences. Text that an
experiment may go without, as the file to pre-train on, is taken away by NOTHING.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from airflow.sdk import Context, Param

from include.experiment import Experiment
from include.named import build, merge, names, read
from include.sections import Section
from include.stages import PIPELINE, STAGES, BadInput

#: The keywords of the model's JSON schema that a Param takes over as they are.
_RULES = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "pattern", "examples",
    "items", "minItems", "maxItems", "additionalProperties", "propertyNames",
)  # fmt: skip


#: What a text field says that takes the named experiment's text away.
NOTHING = "none"

#: The sections that a run of the pipeline has use for: what its stages read, and where they run.
_PIPELINE = {part.partition(".")[0] for stage in PIPELINE for part in STAGES[stage].reads} | {"runtime"}


class _Field(NamedTuple):
    key: str
    section: str
    description: str
    default: Any
    schema: dict[str, Any]


def form(experiment: str = names()[0], more: Iterable[str] = ()) -> dict[str, Param]:
    """A Dag's params: `experiment`, and `section.field` for every field that the pipeline, or `more` sections, have.

    `experiment` is the one to start from unless a run names another.
    """
    params = {
        "experiment": Param(
            experiment,
            title="Experiment",
            type="string",
            enum=names(),
            section="Experiment",
            description_md=f"The named experiment to start from: {', '.join(names())}. Every other field left empty "
            f"keeps what it says. Default: `{experiment}`.",
        )
    }
    for field in _fields(_PIPELINE.union(more)):
        params[field.key] = Param(
            None,
            title=field.key,
            section=field.section.capitalize(),
            description_md=f"{field.description} Default: `{json.dumps(field.default)}`.{_remark(field.default)}",
            **_nullable(field.schema),
        )
    return params


def resolve(params: Mapping[str, Any]) -> Experiment:
    """The experiment that a run's params stand for. Raises BadInput, naming key, value and remedy.

    $SPARK_BERT_SPARK_MASTER is the deployment's cluster: for runs that name no other.
    """
    name = params["experiment"]
    if name not in names():
        raise BadInput(f"unknown experiment {name!r}: write one of {', '.join(names())}")
    master = os.environ.get("SPARK_BERT_SPARK_MASTER")
    given: dict[str, Any] = {"runtime.spark_master": master} if master else {}
    absent = {field.key for field in _fields(Experiment.model_fields) if _may_be_absent(field.default)}
    for key, value in filled(params).items():
        given[key] = "" if value == NOTHING and key in absent else value
    del given["experiment"]
    return build(merge(read(name), given), f"experiment {name}")


def filled(params: Mapping[str, Any]) -> dict[str, Any]:
    """The params that say something: an empty one leaves its field as the named experiment has it."""
    return {key: value for key, value in params.items() if value is not None and value != ""}


def from_form(context: Context) -> Experiment:
    """The experiment of a run whose params are the form's. Raises BadInput as resolve does."""
    return resolve(context["params"])


def explain(params: Mapping[str, Param]) -> str:
    """Markdown for a Dag's page: what every parameter means."""
    rows = (f"| `{key}` | {param.schema['description_md']} |" for key, param in params.items())
    return "\n".join(["| parameter | meaning |", "| --- | --- |", *rows])


def _may_be_absent(default: Any) -> bool:
    """Whether an experiment may go without the text of a field with this default."""
    return bool(default == "")


def _remark(default: Any) -> str:
    return f" `{NOTHING}` takes away what the experiment says." if _may_be_absent(default) else ""


def _fields(sections: Collection[str]) -> Iterator[_Field]:
    for section, info in Experiment.model_fields.items():
        if section not in sections:
            continue
        model = info.annotation
        assert isinstance(model, type) and issubclass(model, Section), f"{section} is not a section"
        defaults = model().model_dump(mode="json")
        for name, schema in model.model_json_schema()["properties"].items():
            yield _Field(f"{section}.{name}", section, schema["description"], defaults[name], schema)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The rules of a field, in the dialect of Airflow's form, with null allowed besides."""
    choices = [choice for choice in schema.get("anyOf", [schema]) if choice["type"] != "null"]
    if len(choices) > 1:
        return _union(choices)
    schema = choices[0]
    rules = {key: schema[key] for key in _RULES if key in schema}
    rules["type"] = [schema["type"], "null"]
    if "const" in schema or "enum" in schema:
        rules["enum"] = [*schema.get("enum", [schema.get("const")]), None]
    if "prefixItems" in schema:  # a pair: the form knows only arrays whose items are all alike
        rules["items"] = {"type": schema["prefixItems"][0]["type"]}
    if "enum" in rules.get("items", {}):  # the form offers an array's examples as a list to choose from
        rules["examples"] = rules["items"]["enum"]
    return rules


def _union(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """The rules of a number or a word: a number's limits do not bind words, nor the words' pattern numbers."""
    rules = {key: choice[key] for choice in choices for key in _RULES if key in choice}
    words = "|".join(choice["const"] for choice in choices if "const" in choice)
    return {**rules, "type": [*(choice["type"] for choice in choices), "null"], "pattern": f"^({words})$"}
