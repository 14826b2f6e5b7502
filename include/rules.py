"""The rules that concern several fields of an experiment. Each names what to write instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from include.answers import reserved
from include.fields.data import OWN
from include.glue import AUTO, GENERIC, METRICS, TASKS, Kind, Task, losses_for
from include.search_space import space_problems
from include.text import shorten

if TYPE_CHECKING:
    from include.experiment import Experiment


class _Exclusion(NamedTuple):
    """Fields that have no other values in a case."""

    when: Callable[[Experiment], object]
    fields: tuple[str, ...]
    why: str  # what follows the name and the value of a field in the message
    instead: str = "write {name}: {fits}"  # how the message ends
    fits: tuple[object, ...] = ()  # the values that the fields may have; if empty, only their defaults


_BASELINES = {
    "frozen": "a regression on the output of an encoder that is not trained",
    "tfidf": "a regression on TF-IDF",
    "textcnn": "a network without encoder layers",
}
_WHOLE = "works only if every rank has the whole model, not with parallel.tensor, pipeline or shard"
_MEANINGLESS = "has no meaning with model.kind {kind}, which is {baseline}"
_OR_ENCODER = "write {name}: {fits}, or model.kind: encoder"


#: What data.path has to be, by source.
_PATHS = {
    "glue": "the folder that holds the files",
    "files": "the folder that holds the files, or the file, folder or pattern with all rows",
    "delta": "the folder or the address of the table",
    "iceberg": "the address of the catalog, such as sqlite:////data/catalog.db",
}


def _is_divided(experiment: Experiment) -> bool:
    return experiment.parallel.ranks > 1 and experiment.model.kind == "encoder"


def _is_regression(experiment: Experiment) -> bool:
    return experiment.model.kind in ("frozen", "tfidf")


def _has_server(experiment: Experiment) -> bool:
    return experiment.communication.strategy == "parameter-server"


def _is_pipeline(experiment: Experiment) -> bool:
    return experiment.parallel.pipeline > 1


def _task_is(kind: Kind) -> Callable[[Experiment], bool]:
    return lambda experiment: TASKS[experiment.data.task].kind == kind


_EXCLUSIONS = (
    _Exclusion(
        _is_divided,
        (
            *("training.compiled_layers", "training.lora_rank", "training.average_decay", "batching.padding_free"),
            *("communication.strategy", "communication.compression", "pretraining.text", "model.teacher"),
        ),
        _WHOLE,
    ),
    _Exclusion(_is_divided, ("training.sparse_embeddings", "training.fused_layers"), _WHOLE, fits=(False,)),
    _Exclusion(_is_divided, ("runtime.lost_rank",), _WHOLE, fits=("fail", "restart")),
    _Exclusion(
        _is_pipeline, ("parallel.shard",), "does not work with parallel.pipeline", "set one of the two fields to 1",
    ),
    _Exclusion(
        _is_pipeline, ("training.accumulation",), "divides a step, as parallel.pipeline already does",
        "write parallel.micro_batches",
    ),
    _Exclusion(
        _is_pipeline, ("training.freeze_layers",), "leaves a stage of parallel.pipeline without gradients",
        "write {name}: {fits}, or parallel.pipeline: 1",
    ),
    _Exclusion(
        lambda experiment: experiment.model.kind != "encoder",
        (
            *("training.freeze_layers", "training.lora_rank", "training.compiled_layers"),
            *("training.activation_checkpointing", "parallel.tensor", "parallel.pipeline", "parallel.shard"),
        ),
        _MEANINGLESS, _OR_ENCODER,
    ),
    _Exclusion(
        _is_regression,
        (
            *("batching.padding_free", "loss.kind", "training.average_decay"),
            *("communication.strategy", "communication.compression", "model.teacher"),
        ),
        _MEANINGLESS, _OR_ENCODER,
    ),
    _Exclusion(
        lambda experiment: experiment.model.kind in ("tfidf", "textcnn"),
        ("model.pooling", "pretraining.text", "retraining.start"), _MEANINGLESS, _OR_ENCODER,
    ),
    _Exclusion(
        lambda experiment: experiment.model.kind == "textcnn", ("training.layer_decay",), _MEANINGLESS, _OR_ENCODER,
    ),
    _Exclusion(
        _is_regression, ("training.ranks",),
        "does not apply to model.kind {kind}, which is trained by Spark and not by ranks", fits=("auto", 1),
    ),
    _Exclusion(
        lambda experiment: experiment.training.lora_rank, ("training.freeze_layers",),
        "has no meaning with training.lora_rank, which freezes the whole encoder and adds adapters to all its layers",
        "set one of the two fields to 0",
    ),
    _Exclusion(
        lambda experiment: experiment.model.lexicon, ("training.lora_rank",),
        "would never train the embeddings of the terms of model.lexicon", "write {name}: {fits}, or no model.lexicon",
    ),
    _Exclusion(
        lambda experiment: experiment.communication.staleness, ("training.average_decay",),
        "needs the current parameters at every step, which are not available with communication.staleness 1",
        "set one of the two fields to 0",
    ),
    _Exclusion(
        _has_server, ("communication.compression",), "works only with the strategies all-reduce and hierarchical",
        "write {name}: {fits}, or communication.server_parameters: fp16",
    ),
    _Exclusion(
        lambda experiment: not _has_server(experiment),
        ("communication.server_momentum", "communication.server_parameters", "communication.staleness"),
        "works only with communication.strategy: parameter-server", "remove it, or write that strategy",
    ),
    _Exclusion(
        lambda experiment: experiment.training.ranks == "auto", ("runtime.ranks_on",),
        "needs a number of ranks, but training.ranks auto is chosen for one machine",
        "write training.ranks as a number, at most the number of Spark tasks that the executors run at once",
    ),
    _Exclusion(
        lambda experiment: len(experiment.task.sentences) == 2, ("preprocessing.long",),
        "is for single texts, because it is unclear which text of a pair to divide",
    ),
    _Exclusion(
        lambda experiment: len(experiment.task.sentences) == 2, ("distillation.text",),
        "is for single texts, because a line of it is one text and no pair",
    ),
    _Exclusion(
        lambda experiment: not experiment.model.teacher,
        (
            *("distillation.text", "distillation.max_rows", "distillation.temperature", "distillation.weight"),
            *("gate.teacher_margin", "gate.teacher_speed"),
        ),
        "works only with model.teacher", "remove it, or name the teacher",
    ),
    _Exclusion(
        lambda experiment: not experiment.distillation.text, ("distillation.max_rows",),
        "limits distillation.text, which is empty", "remove it, or name the text",
    ),
    _Exclusion(
        _task_is("regression"), ("distillation.temperature",), "needs classes or labels, but {task} has scores",
        "remove {name}",
    ),
    _Exclusion(
        _task_is("regression"), ("loss.class_weights",), "needs classes, but {task} has scores", "remove {name}",
    ),
    _Exclusion(
        _task_is("regression"), ("gate.calibration_error",), "needs probabilities, but {task} has scores",
        "remove {name}",
    ),
    _Exclusion(
        _task_is("multilabel"), ("loss.class_weights",),
        "weighs rows by their class, but with data.task multi-label a row may have several labels",
        "remove {name}; for rare labels, try loss.kind: focal",
    ),
    _Exclusion(
        lambda experiment: _source(experiment) not in ("files", ""),
        ("data.delimiter", "data.encoding"),
        "works only with data.source files, not with {source}", "remove {name}",
    ),
    _Exclusion(
        lambda experiment: _source(experiment) not in (*OWN, ""), ("data.columns", "data.label_map", "data.keep"),
        "works only with data.source files, delta and iceberg, not with {source}", "remove {name}",
    ),
    _Exclusion(
        lambda experiment: _source(experiment) in ("delta", "iceberg"), ("data.train", "data.dev", "data.test"),
        "has no meaning with data.source {source}, a table with all rows", "remove {name}",
    ),
    _Exclusion(
        lambda experiment: _source(experiment) != "iceberg", ("data.table",),
        "works only with data.source iceberg", "remove {name}",
    ),
    _Exclusion(
        lambda experiment: _source(experiment) not in ("delta", "iceberg"), ("data.version",),
        "works only with data.source delta and iceberg", "remove {name}",
    ),
    _Exclusion(
        lambda experiment: not experiment.scoring.is_database, ("scoring.driver",),
        "works only if scoring.input is a database", "remove {name}",
    ),
    _Exclusion(
        lambda experiment: not experiment.scoring.is_database and "://" not in experiment.scoring.input,
        ("scoring.table",), "works only if scoring.input is a database or a catalog of Iceberg", "remove {name}",
    ),
    _Exclusion(
        lambda experiment: experiment.scoring.is_database, ("scoring.version",),
        "works only if scoring.input is a Delta or an Iceberg table", "remove {name}",
    ),
    _Exclusion(
        lambda experiment: not experiment.retraining.trial_texts, ("retraining.min_agreement",),
        "is about the answers in a trial, but retraining.trial_texts is 0, so there is none",
        "write the number of texts to try, or {name}: 0",
    ),
)  # fmt: skip


def problems(experiment: Experiment) -> Iterator[str]:
    """Yield every contradiction in an experiment, with what to write instead."""
    rules = (
        _source_fits_task, _labels_fit_task, _labels_can_be_separated, _kept_columns_fit, _exclusions, _stride_fits,
        _ranks_divide_batches, _ranks_fit_the_mesh, _names_fit_task, _slices_fit_task, _columns_to_label_are_named,
        space_problems,
    )  # fmt: skip
    return chain.from_iterable(rule(experiment) for rule in rules)


def _exclusions(experiment: Experiment) -> Iterator[str]:
    kind, task = experiment.model.kind, experiment.data.task
    case = {"kind": kind, "baseline": _BASELINES.get(kind), "task": task, "source": _source(experiment)}
    for rule in _EXCLUSIONS:
        for name in rule.fields if rule.when(experiment) else ():
            section, field = name.split(".")
            values = getattr(experiment, section)
            value, fits = getattr(values, field), rule.fits or (type(values).model_fields[field].default,)
            if value not in fits:
                message = f"{rule.why}: {rule.instead}".format(name=name, fits=_written(fits[0]), **case)
                yield f"{name} {shorten(_written(value), 100)} {message}"


def _written(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _source_fits_task(experiment: Experiment) -> Iterator[str]:
    data, sources = experiment.data, _sources(TASKS[experiment.data.task])
    if data.source not in sources:
        yield (
            f"data.task {data.task} is not available from data.source {data.source}: "
            f"write data.source: {_any_of(sources)}"
        )
    source = _source(experiment)
    if source in _PATHS and not data.path:
        yield f"data.source {source} needs data.path: write {_PATHS[source]}"
    if source == "iceberg" and not data.table:
        yield "data.source iceberg needs data.table: write the name of the table, as CATALOG.NAMESPACE.TABLE"


def _source(experiment: Experiment) -> str:
    """Return the source that fits the task: that of the section, else files if only own data do, else none ("")."""
    sources = _sources(TASKS[experiment.data.task])
    if experiment.data.source in sources:
        return experiment.data.source
    return "files" if sources == OWN else ""


def _sources(task: Task) -> tuple[str, ...]:
    if task.name in GENERIC:
        return OWN
    if task.name == "movie-reviews":
        return ("bundled", *OWN)
    return ("glue", *OWN) if task.hub is None else ("glue", "hub", *OWN)


def _labels_fit_task(experiment: Experiment) -> Iterator[str]:
    data = experiment.data
    if data.task in ("classification", "multi-label") and len(data.labels) == 1:
        other = {
            "classification": 'write, for example, ["no", "yes"], or none, and they are taken from the label column',
            "multi-label": 'write, for example, ["acting", "plot"], or data.task: classification if there is a single '
            "label that a row has or has not",
        }
        yield f"data.task {data.task} needs two or more data.labels: {other[data.task]}"
    if data.score_range and data.score_range[0] >= data.score_range[1]:
        low, high = data.score_range
        why = (
            f"is reversed: write [{high:g}, {low:g}]" if low > high else "is empty: write the lowest and highest score"
        )
        yield f"data.score_range [{low:g}, {high:g}] {why}"
    if data.task not in GENERIC and (data.labels or data.score_range):
        yield (
            f"data.task {data.task} has its own labels: remove data.labels and data.score_range, "
            f"or write data.task: {_any_of(GENERIC)}"
        )


def _labels_can_be_separated(experiment: Experiment) -> Iterator[str]:
    data = experiment.data
    for label in data.labels if TASKS[data.task].kind == "multilabel" else ():
        if data.label_separator in label or label != label.strip():
            yield (
                f"the label {label!r} contains data.label_separator {data.label_separator!r}, or begins or ends with "
                "white space, so it cannot be found in a cell with several labels: rename it here and in the files, "
                "or use another separator"
            )


def _kept_columns_fit(experiment: Experiment) -> Iterator[str]:
    keep = experiment.data.keep
    for at, name in enumerate(keep):
        if name.casefold() in [other.casefold() for other in keep[:at]]:
            yield f"data.keep names {name!r} twice (case is ignored, as Spark does): name it once, or rename it"
        if reserved(name, experiment.prediction.max_risk):
            yield f"data.keep names {name!r}, but the predictions have a column of that name: rename it in your file"


def _any_of(values: Sequence[str]) -> str:
    """Return "a", "a or b", "a, b or c" and so on."""
    *first, last = values
    return f"{', '.join(first)} or {last}" if first else last


def _stride_fits(experiment: Experiment) -> Iterator[str]:
    stride, longest = experiment.preprocessing.window_stride, experiment.preprocessing.max_length
    if stride is not None and stride > longest // 2:
        yield (
            f"preprocessing.stride {stride} is more than half of preprocessing.max_length {longest}, so most "
            f"tokens would be in three windows or more: write preprocessing.stride: {longest // 2} or less"
        )


def _ranks_divide_batches(experiment: Experiment) -> Iterator[str]:
    if experiment.batching.kind not in ("length", "static"):
        return
    ranks, parallel = experiment.training.ranks, experiment.parallel
    parts = parallel.shard if ranks == "auto" else max(1, ranks // parallel.same_rows)
    what = f"training.ranks {ranks}" if parts == ranks else f"the {parts} ranks that compute different rows"
    sizes = {"training": experiment.training.batch_size}
    if experiment.pretraining.text:
        sizes["pretraining"] = experiment.pretraining.batch_size
    for section, size in sizes.items():
        if size % parts:
            yield f"{section}.batch_size {size} is not a multiple of {what}: write {max(size // parts, 1) * parts}"


def _ranks_fit_the_mesh(experiment: Experiment) -> Iterator[str]:
    ranks, parallel = experiment.training.ranks, experiment.parallel
    if ranks != "auto" and ranks % parallel.ranks:
        yield (
            f"training.ranks {ranks} is not a multiple of {parallel.ranks}, the number of ranks that parallel.tensor, "
            "parallel.pipeline and parallel.shard divide a model among: write "
            f"{max(ranks // parallel.ranks, 1) * parallel.ranks}, or training.ranks: auto"
        )
    if parallel.micro_batches < parallel.pipeline > 1:
        yield (
            f"parallel.micro_batches {parallel.micro_batches} leave some of the {parallel.pipeline} stages of "
            f"parallel.pipeline idle: write {parallel.pipeline} or more"
        )


def _names_fit_task(experiment: Experiment) -> Iterator[str]:
    task, kind = experiment.data.task, TASKS[experiment.data.task].kind
    chosen: list[tuple[str, list[str], list[str]]] = [
        ("loss.kind ", [experiment.loss.kind], ["auto", *losses_for(kind)]),
        ("training.best_by ", [experiment.training.best_by], ["metric", "loss", *METRICS[kind]]),
        ("gate.", sorted(experiment.gate.thresholds), [*METRICS[kind]]),
    ]
    for field, names, fitting in chosen if task != AUTO else ():
        if wrong := [name for name in names if name not in fitting]:
            yield f"{field}{wrong[0]} does not fit the {kind} task {task}: write one of {', '.join(fitting)}"


def _slices_fit_task(experiment: Experiment) -> Iterator[str]:
    unknown = sorted(set(experiment.gate.slices) - set(experiment.task.slices))
    if unknown and experiment.data.is_described:
        yield (
            f"gate.slices names {unknown[0]!r}, which is not a slice of dev: "
            f"write one of {', '.join(experiment.task.slices)}"
        )


def _columns_to_label_are_named(experiment: Experiment) -> Iterator[str]:
    scoring = experiment.scoring
    needed = (
        ("table", scoring.table, "the table to score"),
        ("driver", scoring.driver, "the .jar file of the database's JDBC driver"),
    )
    for name, value, what in needed if scoring.is_database else ():
        if not value:
            yield f"scoring.input is a database, which needs scoring.{name}: write {what}"
    for name, part in (("scoring", scoring), ("streaming", experiment.streaming)):
        if part.text == part.text2:
            yield f"{name}.text and {name}.text2 both name {part.text!r}: name two columns, or one in {name}.text"
