"""What a terminal shows of a run: one line for each stage as it ends, and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from include.runs import Run
from spark_bert.terminal.simpler import simpler_winner
from spark_bert.web.links import LINKS

_INDENT = 12
#: The form that computes what transformers computes.
EXACT = "torch-fp32"
_INEXACT = "whose answers to near-ties may differ from transformers'; prediction.backend=torch computes the same"
Result = Mapping[str, Any]


def outcome(stage: str, entry: Mapping[str, Any]) -> str:
    """Say in one line how a stage has ended.

    Args:
        stage: the name of the stage.
        entry: what the run's record has on it: exit_code and, depending on that, message or result.
    """
    if entry["exit_code"]:
        return str(entry["message"])
    said = _OUTCOMES[stage](entry["result"]) if stage in _OUTCOMES else "done"
    return f"found: {said}" if entry.get("reused") else said


def summary(run: Run) -> str:
    """Return the summary: data, training, metrics, verdict, warnings, failures, the model, and the files to open."""
    record = run.record()
    lines = [
        ("run", str(run.folder)),
        *_facts(record),
        *_better(run, record),
        *_warnings(record["stages"]),
        *_failures(record["stages"]),
    ]
    if "result" in record["stages"].get("train", {}):
        lines.append(("model", str(run.store.path("train", record["stages"]["train"]["key"]) / "model")))
    lines += [("open", f"{title:24}{file}") for title, file in files(run).items()]
    return "\n".join(["", *_labeled(lines)])


def files(run: Run) -> dict[str, Path]:
    """Return the files to open, by the titles of the buttons that open them in Airflow."""
    return {
        link.title: run.store.path(stage, entry["key"]) / entry["result"]["files"][link.file]
        for stage, entry in run.record()["stages"].items()
        for link in LINKS.get(stage, ())
        if link.file in entry.get("result", {}).get("files", {})
    }


def _labeled(lines: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines behind their labels. A label that repeats itself is shown once."""
    last = ""
    for label, text in lines:
        yield f"{'' if label == last else label:{_INDENT}}{text}"
        last = label


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the results of the stages say about the run. A gate that was not passed has a result, too."""
    results = {stage: entry["result"] for stage, entry in record["stages"].items() if "result" in entry}
    if "validate" in results:
        data = record["experiment"]["data"]
        yield "data", f"{data['task']}: {_validated(results['validate'])}"
        yield from (("data", text) for text in _described(data))
    if "train" in results:
        yield "training", _trained(results["train"])
    for check in results.get("gate", {}).get("checks", []):
        yield "metrics", _check(check)
    if "gate" in results:
        yield "verdict", "passed" if results["gate"]["passed"] else "not passed"
    if "package" in results:
        yield "package", _packaged(results["package"])
    if form := results.get("predict", {}).get("form", ""):
        yield "predicted", form if form == EXACT else f"with {form}, {_INEXACT}"
    if "track" in results:
        yield "MLflow", _tracked(results["track"])


def _better(run: Run, record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if found := simpler_winner(run, record):
        yield "simpler", found


def _warnings(stages: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for entry in stages.values():
        for warning in entry.get("result", {}).get("warnings", []):
            yield "warnings", warning


def _failures(stages: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for stage, entry in stages.items():
        if entry["exit_code"]:
            yield "failed", f"{stage}: {entry['message']}"


def _validated(result: Result) -> str:
    removed = f"{result['quarantined']} set aside, {result['overlap_removed']} removed as overlap"
    return f"{_rows(result)}; {removed}"


def _described(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the labels of the user's own files are. Old records do not have the fields."""
    if data.get("labels"):
        yield f"labels {', '.join(data['labels'])}"
    if data.get("score_range"):
        yield "scores from {:g} to {:g}".format(*data["score_range"])


def _preprocessed(result: Result) -> str:
    length = f"{result['mean_length']['train']:.0f} tokens per"
    cut = result.get("truncated", {}).get("train")
    if "windows" in result:
        return f"{_rows(result)}; {result['windows']['train']:,} windows of train, {length} window"
    return f"{_rows(result)}; {length} row of train{f', {cut:,} rows of train cut off' if cut else ''}"


def _rows(result: Result) -> str:
    """Describe the rows of each split, for example `8,017 train, 1,037 dev, 989 test rows`."""
    return ", ".join(f"{count:,} {split}" for split, count in result["rows"].items()) + " rows"


def _pretrained(result: Result) -> str:
    if not result["pretrained"]:
        return "no unlabeled text, so nothing to do"
    perplexity = "undefined" if result["perplexity"] is None else f"{result['perplexity']:.2f}"
    return f"perplexity {perplexity}, {result['rows_per_second']:,.0f} blocks per second"


def _trained(result: Result) -> str:
    return f"{result['rows_per_second']:,.0f} rows per second on {_hardware(result)}"


def _hardware(result: Result) -> str:
    """Describe the hardware of a training, for example `2 ranks x 4 threads (cpu, bf16)`."""
    ranks = "1 rank" if result["ranks"] == 1 else f"{result['ranks']} ranks"
    threads = "1 thread" if result["threads"] == 1 else f"{result['threads']} threads"
    return f"{ranks} x {threads} ({result['device']}, {result['precision']})"


def _evaluated(result: Result) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in result["metrics"].items() if value is not None)


def _check(check: Result) -> str:
    """Describe one comparison of the gate: value, interval, threshold and baseline, as far as there are any."""
    where = f" on {check['slice']}" if check["slice"] else ""
    value = "is undefined" if check["value"] is None else f"{check['value']:.4f}"
    parts = [f"{check['metric']}{where} {value}"]
    if check["interval"]:
        parts.append("95 % interval {:.3f} to {:.3f}".format(*check["interval"]))
    parts.append(f"threshold {check['threshold']:g}")
    if check["baseline"] is not None:
        parts.append(f"a constant answer reaches {check['baseline']:.4f}")
    return ", ".join(parts)


def _packaged(result: Result) -> str:
    """Describe the served form and the others, for example `onnxruntime-fp32, 1.50 times PyTorch; 3 of 5 offered`."""
    served = next(form for form in result["forms"] if form["name"] == result["served"])
    offered = sum(form["offered"] for form in result["forms"])
    return f"{served['name']}, {served['times_torch']:.2f} times PyTorch; {offered} of {len(result['forms'])} offered"


def _predicted(result: Result) -> str:
    if not result["rows"]:
        return "nothing, because there is no test file"
    return f"{result['rows']:,} rows, {result['rows_per_second']:,.0f} rows per second"


def _tracked(result: Result) -> str:
    return f"run {result['mlflow_run']} at {result['uri']}"


_OUTCOMES: dict[str, Callable[[Result], str]] = {
    "validate": _validated,
    "preprocess": _preprocessed,
    "pretrain": _pretrained,
    "train": _trained,
    "evaluate": _evaluated,
    "gate": lambda result: "passed",
    "package": _packaged,
    "predict": _predicted,
    "export": lambda result: result["files"].get("submission", "nothing, because there is no test file"),
    "track": _tracked,
}
