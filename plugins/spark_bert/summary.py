"""The summary of a run for a terminal: data, metrics, verdict, throughput and paths of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from include.runs import Run

_INDENT = 12


def summary(run: Run) -> str:
    """Return the summary, with one line per stage that ran, followed by one line per warning of that stage."""
    stages = run.record()["stages"]
    lines = ["", f"{'run':{_INDENT}}{run.folder}"]
    for stage, describe in _DESCRIPTIONS.items():
        if stage in stages:
            entry = stages[stage]
            lines.append(f"{stage:{_INDENT}}{entry['message'] if entry['exit_code'] else describe(entry['result'])}")
            lines += [f"{'':{_INDENT}}warning: {text}" for text in entry.get("result", {}).get("warnings", [])]
    return "\n".join(lines)


def _files(result: Mapping[str, Any]) -> str:
    return ", ".join(str(Path(result["artifact"], name)) for name in result["files"].values())


def _validated(result: Mapping[str, Any]) -> str:
    rows = ", ".join(f"{split} {count:,}" for split, count in result["rows"].items())
    counts = f"{result['quarantined']} set aside, {result['overlap_removed']} removed as overlap"
    return f"{rows} rows; {counts}; {len(result['warnings'])} warnings: {_files(result)}"


def _pretrained(result: Mapping[str, Any]) -> str:
    if not result["pretrained"]:
        return "no text"
    return f"perplexity {result['perplexity']:.2f}, {result['rows_per_second']:,.0f} blocks/s: {result['artifact']}"


def _trained(result: Mapping[str, Any]) -> str:
    return f"{result['rows_per_second']:,.0f} rows/s in {result['seconds']:,.0f} s on {_hardware(result)}"


def _hardware(result: Mapping[str, Any]) -> str:
    """Describe the hardware of a training, for example `2 ranks x 4 threads (cpu)`."""
    ranks = "1 rank" if result["ranks"] == 1 else f"{result['ranks']} ranks"
    threads = "1 thread" if result["threads"] == 1 else f"{result['threads']} threads"
    return f"{ranks} x {threads} ({result['device']})"


def _evaluated(result: Mapping[str, Any]) -> str:
    metrics = (f"{name} {value:.4f}" for name, value in result["metrics"].items() if value is not None)
    return f"{', '.join(metrics)}: {_files(result)}"


def _passed(result: Mapping[str, Any]) -> str:
    return f"passed ({'; '.join(map(_check, result['checks']))}): {_files(result)}"


def _check(check: Mapping[str, Any]) -> str:
    beaten = "" if check["baseline"] is None else f", baseline {check['baseline']:.4f}"
    where = f" on {check['slice']}" if check["slice"] else ""
    return f"{check['metric']}{where} {check['value']:.4f}, threshold {check['threshold']:g}{beaten}"


_DESCRIPTIONS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "validate": _validated,
    "pretrain": _pretrained,
    "train": _trained,
    "evaluate": _evaluated,
    "gate": _passed,
    "predict": lambda result: f"{result['rows']:,} rows, {result['rows_per_second']:,.0f} rows/s: {_files(result)}",
    "export": _files,
    "track": lambda result: f"MLflow run {result['mlflow_run']} at {result['uri']}",
}
