"""What a terminal shows of a run: one line for each stage as it ends, and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from include.glue import TASKS
from include.runs import Run
from include.stages import BadInput
from spark_bert.web.links import LINKS

_INDENT = 12
_EXACT = "torch-fp32"  # the form that computes what transformers computes
_INEXACT = "whose answers to near-ties may differ from transformers'; prediction.form=torch-fp32 computes the same"
_KINDS = ("tfidf", "textcnn", "frozen", "encoder")  # of models, the simplest first
Result = Mapping[str, Any]


class _Model(NamedTuple):
    run: str
    kind: str
    value: float
    seconds: float
    data: tuple[str, int]


def outcome(stage: str, entry: Mapping[str, Any]) -> str:
    """Describe in one line how a stage has ended, from its entry in the run's record."""
    if entry["exit_code"]:
        return str(entry["message"])
    description = _OUTCOMES[stage](entry["result"]) if stage in _OUTCOMES else "done"
    return f"found: {description}" if entry.get("reused") else description


def summary(run: Run) -> str:
    """Return the summary: data, training, metrics, verdict, warnings, failures, the model, and the files to open."""
    record = run.record()
    stages = record["stages"]
    lines = [("run", str(run.folder)), *_facts(record)]
    if better := _simpler_winner(run, record):
        lines.append(("simpler", better))
    lines += [("warnings", text) for entry in stages.values() for text in entry.get("result", {}).get("warnings", [])]
    lines += [("failed", f"{stage}: {entry['message']}") for stage, entry in stages.items() if entry["exit_code"]]
    if "result" in stages.get("train", {}):
        lines.append(("model", str(run.store.path("train", stages["train"]["key"]) / "model")))
    lines += [("open", f"{title:24}{file}") for title, file in files(run).items()]
    return "\n".join(["", *_labeled(lines)])


def files(run: Run) -> dict[str, Path]:
    """Return the files to open, by the titles of the buttons that open them in Airflow."""
    return {
        link.name: run.store.path(stage, entry["key"]) / entry["result"]["files"][link.file]
        for stage, entry in run.record()["stages"].items()
        for link in LINKS.get(stage, ())
        if link.file in entry.get("result", {}).get("files", {})
    }


def _labeled(lines: list[tuple[str, str]]) -> Iterator[str]:
    last = ""
    for label, text in lines:
        yield f"{'' if label == last else label:{_INDENT}}{text}"
        last = label


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    results = {stage: entry["result"] for stage, entry in record["stages"].items() if "result" in entry}
    if "validate" in results:
        data = record["experiment"]["data"]
        yield "data", f"{data['task']}: {_validated(results['validate'])}"
        if data.get("labels"):
            yield "data", f"labels {', '.join(data['labels'])}"
        if data.get("score_range"):
            yield "data", "scores from {:g} to {:g}".format(*data["score_range"])
    if "train" in results:
        yield "training", _trained(results["train"])
    for check in results.get("gate", {}).get("checks", []):
        yield "metrics", _check(check)
    if teacher := results.get("evaluate", {}).get("teacher"):
        yield "teacher", _compared(teacher)
    if "gate" in results:
        yield "verdict", "passed" if results["gate"]["passed"] else "not passed"
    if "package" in results:
        yield "package", _packaged(results["package"])
    yield from _forms(results.get("predict", {}))
    if "track" in results:
        yield "MLflow", _tracked(results["track"])


def _forms(predict: Result) -> Iterator[tuple[str, str]]:
    if form := predict.get("form", ""):
        yield "predicted", form if form == _EXACT else f"with {form}, {_INEXACT}"
    if risk := predict.get("risk", ""):
        yield "risk", risk


def _simpler_winner(run: Run, record: Mapping[str, Any]) -> str:
    """Describe the simpler model of another run with the better metric on the same dev rows; "" if there is none."""
    here = _model(record)
    if here is None:
        return ""
    simpler = _KINDS[: _KINDS.index(here.kind)]
    best = here
    for file in run.folder.parent.glob("*/run.json"):
        with suppress(BadInput, OSError):  # a damaged record, or one of another user
            other = _model(Run(file.parent).record())
            if other and other.data == here.data and other.kind in simpler and other.value > best.value:
                best = other
    if best is here:
        return ""
    metric = TASKS[record["experiment"]["data"]["task"]].metric
    return (
        f"{best.kind} reaches {metric} {best.value:.4f} after {best.seconds:,.0f} s of training (run {best.run}), this "
        f"model {here.value:.4f} after {here.seconds:,.0f} s"
    )


def _model(record: Mapping[str, Any]) -> _Model | None:
    stages, experiment = record["stages"], record.get("experiment", {})
    try:
        value = stages["evaluate"]["result"]["metrics"][TASKS[experiment["data"]["task"]].metric]
        data = stages["validate"]["key"], stages["preprocess"]["result"]["rows"]["dev"]
        return _Model(
            record["run"], experiment["model"]["kind"], float(value), stages["train"]["result"]["seconds"], data
        )
    except (KeyError, TypeError):
        return None


def _validated(result: Result) -> str:
    removed = f"{result['quarantined']} set aside, {result['overlap_removed']} removed as overlap"
    return f"{_rows(result)}; {removed}"


def _preprocessed(result: Result) -> str:
    length = f"{result['mean_length']['train']:.0f} tokens per"
    cut = result.get("truncated", {}).get("train")
    if "windows" in result:
        return f"{_rows(result)}; {result['windows']['train']:,} windows of train, {length} window"
    return f"{_rows(result)}; {length} row of train{f', {cut:,} rows of train cut off' if cut else ''}"


def _rows(result: Result) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in result["rows"].items()) + " rows"


def _pretrained(result: Result) -> str:
    if not result["pretrained"]:
        return "no unlabeled text, so nothing to do"
    perplexity = "undefined" if result["perplexity"] is None else f"{result['perplexity']:.2f}"
    return f"perplexity {perplexity}, {result['rows_per_second']:,.0f} blocks per second"


def _taught(result: Result) -> str:
    if not result["teacher"]:
        return "no teacher, so nothing to do"
    return f"{_rows(result)} from {result['teacher']} ({result['form']})"


def _trained(result: Result) -> str:
    ranks = "1 rank" if result["ranks"] == 1 else f"{result['ranks']} ranks"
    threads = "1 thread" if result["threads"] == 1 else f"{result['threads']} threads"
    hardware = f"{ranks} x {threads} ({result['device']}, {result['precision']})"
    layout = f"; {result['layout']}" if "layout" in result else ""
    return f"{result['rows_per_second']:,.0f} rows per second on {hardware}{layout}"


def _evaluated(result: Result) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in result["metrics"].items() if value is not None)


def _check(check: Result) -> str:
    where = f" on {check['slice']}" if check["slice"] else ""
    value = "is undefined" if check["value"] is None else f"{check['value']:.4f}"
    parts = [f"{check['metric']}{where} {value}"]
    if check["interval"]:
        parts.append("95 % interval {:.3f} to {:.3f}".format(*check["interval"]))
    at_most = "at most " if check.get("bound") == "at most" else ""
    parts.append(f"threshold {at_most}{check['threshold']:g}")
    if check["baseline"] is not None:
        parts.append(f"a constant answer reaches {check['baseline']:.4f}")
    return ", ".join(parts)


def _compared(teacher: Result) -> str:
    """Compare the model with its teacher, whose metric may be undefined."""
    values = ["undefined" if teacher[side] is None else f"{teacher[side]:.4f}" for side in ("model", "teacher")]
    times = f"{teacher['rows_per_second']['times']:.2f} times as many rows per second"
    found = teacher["interval"]
    between = f", 95 % interval of the difference {found[0]:.4f} to {found[1]:.4f}" if found else ""
    return f"{teacher['metric']} {values[0]}, that of {teacher['name']} {values[1]}{between}; {times}"


def _packaged(result: Result) -> str:
    forms = {form["name"]: form for form in result["forms"]}
    predicts, served = forms[result["predicts"]], forms[result["served"]]
    times = predicts["speeds"]["one_thread"]["times_torch"], served["speeds"]["many_clients"]["times_torch"]
    offered = sum(form["offered"] for form in forms.values())
    return (
        f"{predicts['name']} predicts ({times[0]:.2f} times PyTorch), {served['name']} serves ({times[1]:.2f} times); "
        f"{offered} of {len(forms)} forms offered"
    )


def _predicted(result: Result) -> str:
    if not result["rows"]:
        return "nothing, because there is no test file"
    share = f", {result['answered'] / result['rows']:.1%} of them answered" if "answered" in result else ""
    return f"{result['rows']:,} rows{share}, {result['rows_per_second']:,.0f} rows per second"


def _tracked(result: Result) -> str:
    return f"run {result['mlflow_run']} at {result['uri']}"


_OUTCOMES: dict[str, Callable[[Result], str]] = {
    "validate": _validated,
    "preprocess": _preprocessed,
    "pretrain": _pretrained,
    "teach": _taught,
    "train": _trained,
    "evaluate": _evaluated,
    "gate": lambda result: "passed",
    "package": _packaged,
    "predict": _predicted,
    "export": lambda result: result["files"].get("submission", "nothing, because there is no test file"),
    "track": _tracked,
}
