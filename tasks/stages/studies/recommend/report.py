"""The report of a search, as a page and as Markdown: first what it recommends, then how it came to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.reporting import page
from tasks.reporting.figures import DASH, or_dash, plain, table
from tasks.stages.studies.recommend.plots import Trial, written

TEMPLATE = Path(__file__).with_name("report.html.j2")
BEST = 10  # trials that the report lists
_SCORE = "{:.4f}".format
_TEST = (
    "Both were trained with seeds that the search has not seen, because the best of many trials is partly the luckiest "
    "one. The interval of the difference and p take into account that there are few seeds and few dev rows: both are "
    "drawn again and again (a paired bootstrap). The same dev rows have chosen the best trial, so on other rows the "
    "difference may be smaller."
)


def html(summary: Mapping[str, Any], plots: Mapping[str, Path]) -> str:
    """Return the page for the content of search.json, with the plots, which are PNG files by their names, in it."""
    images = {name: page.inline(file) for name, file in plots.items()}
    return page.render(
        TEMPLATE, summary=summary, found=summary["comparison"], verdict=_verdict(summary), test=_test(summary),
        about=_TEST, settings=_settings(summary), seeds=_seeds(summary), titles=_titles(summary), trials=_best(summary),
        plots=images, counts=_counts(summary), shares=_shares(summary),
    )  # fmt: skip


def markdown(summary: Mapping[str, Any]) -> str:
    """Return the content of search.json as Markdown."""
    lines = [f"# Search {plain(summary['search'])}", "", f"**{_verdict(summary)}.** {plain(_test(summary))}", ""]
    lines += [*table(["field", "default", f"trial {summary['best']}"], _settings(summary)), ""]
    if seeds := _seeds(summary):
        titles = ["seed", f"default, {summary['metric']}", f"trial {summary['best']}, {summary['metric']}"]
        lines += [*table(titles, seeds), "", _TEST, ""]
    lines += ["## The best trials", "", f"{_counts(summary)}.", "", *table(_titles(summary), _best(summary))]
    if summary["importance"]:
        rows = [[name, f"{100 * share:.1f} %"] for name, share in summary["importance"].items()]
        lines += ["", "## Importance of the fields", "", *table(["field", "share of the variance"], rows)]
    return "\n".join([*lines, ""])


def _verdict(summary: Mapping[str, Any]) -> str:
    if summary["comparison"]["recommended"] == "winner":
        return f"The settings of trial {summary['best']} are better than the default"
    return "Keep the default settings"


def _test(summary: Mapping[str, Any]) -> str:
    """Return the paired test in words."""
    found = summary["comparison"]
    reason = f"{found['reason'][0].upper()}{found['reason'][1:]}."
    return reason if found["p"] is None else f"{reason} p is {found['p']:.2g} on {found['rows']:,} dev rows."


def _settings(summary: Mapping[str, Any]) -> list[list[str]]:
    values = summary["trials"][summary["best"]]["values"]
    return [[name, written(summary["default"][name]), written(values[name])] for name in summary["space"]]


def _seeds(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the metric of default and winner with each seed, and their means; nothing if none was trained."""
    found = summary["comparison"]
    default, winner = found["default"], found["winner"]
    if not found["seeds"]:
        return []
    pairs = zip(found["seeds"], default["values"], winner["values"], strict=True)
    rows = [[str(seed), *(or_dash(value, _SCORE) for value in values)] for seed, *values in pairs]
    return [*rows, ["mean", *(or_dash(side["mean"], _SCORE) for side in (default, winner))]]


def _titles(summary: Mapping[str, Any]) -> list[str]:
    return ["trial", summary["metric"], "rung", "steps", "gate", "time", *summary["space"]]


def _best(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the trials that have come furthest, the best ones first."""
    reached = [trial for trial in summary["trials"] if trial["rungs"] and trial["metric"] is not None]
    reached.sort(key=lambda trial: (-len(trial["rungs"]), -trial["metric"], trial["number"]))
    return [_cells(trial, list(summary["space"])) for trial in reached[:BEST]]


def _cells(trial: Trial, names: Sequence[str]) -> list[str]:
    name = f"{trial['number']} (default)" if trial["default"] else str(trial["number"])
    gate = DASH if trial["passed"] is None else "passed" if trial["passed"] else "failed"
    rungs = trial["rungs"]
    figures = [_SCORE(trial["metric"]), str(len(rungs)), f"{rungs[-1]['step']:,}", gate, f"{trial['seconds']:,.0f} s"]
    return [name, *figures, *(written(trial["values"][name]) for name in names)]


def _counts(summary: Mapping[str, Any]) -> str:
    """Return in words what the search has tried."""
    trials = summary["trials"]
    counts = [f"{sum(trial['state'] == state for trial in trials)} {state}" for state in ("complete", "paused")]
    counts += [f"{failed} failed" for failed in [sum(trial["state"] == "failed" for trial in trials)] if failed]
    spent, budget = summary["seconds"] / 60, summary["minutes"]
    return f"{len(trials)} trials ({', '.join(counts)}) in {spent:.1f} of {budget:g} minutes"


def _shares(summary: Mapping[str, Any]) -> str:
    *before, _ = (f"{100 * share:.0f} %" for share in summary["shares"])
    return " and after ".join(before)
