"""The stage search: try settings until the budget is spent, and write search.json (tasks/search/summary.py)."""

from __future__ import annotations

from include.artifacts import write_json
from include.experiment import Experiment
from include.runs import SEARCH, Run
from tasks.context import Context, Outcome


def plan(experiment: Experiment, run: Run) -> dict[str, str]:
    """Return what trials depend on besides the data and the experiment."""
    from tasks.search.opening import read_by_trials

    return read_by_trials(experiment, run)


def run(context: Context, plan: dict[str, str]) -> Outcome:
    """Work on the search, together with other processes that do, and write what was found."""
    from tasks.search.opening import opened
    from tasks.search.summary import so_far, summarize
    from tasks.search.worker import Worker

    search, storage, study = opened(context, plan)
    worker = Worker(
        search, storage, study, lambda trials: write_json(context.run.folder / SEARCH, so_far(search, trials))
    )
    worker.work()
    summary = summarize(search, worker.trials())
    write_json(context.output / SEARCH, summary)
    best = summary["trials"][summary["best"]]
    counts = {state: sum(trial["state"] == state for trial in summary["trials"]) for state in ("complete", "paused")}
    result = {"search": search.name, "trials": len(summary["trials"]), **counts, "metric": search.metric}
    return Outcome({**result, "best": best["metric"], "values": best["values"], "files": {"search": SEARCH}})
