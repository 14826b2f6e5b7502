"""Make the runs that README and docs show, in a real Airflow, and take the pictures: what `make pictures` calls."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from include.ablations import TABLE_5, day
from tests.e2e.camera import Camera, camera
from tests.e2e.server import ROOT, Call, airflow_ui, own_checkout, service, to_end, trigger, wait_for

IMAGES = ROOT / "docs/images"
#: Parts of the bundled movie reviews that train within a minute: for a run, and for each of an ablation's.
SMALL = {"preprocessing.sample": 0.2, "training.epochs": 1}
SMALLER = {"preprocessing.sample": 0.1, "training.epochs": 1}
#: What the Dag retrain trains. Its second run, about which a person is asked, has more rows. After so few steps a model
#: may answer nearly always the same, and no challenger is as good as that on the rows of this class.
EXPERIMENT = """
dataset: {drop: data/drop}
preprocessing: {sample: 0.1}
training: {epochs: 1}
gate: {accuracy: 0.6}
retraining: {slice_margin: 0.9}
"""
ASKED = {"preprocessing.sample": 0.2, "retraining.approval": True}
#: A leaderboard of two models that train fast.
COMPARED = {"models": ["tfidf", "all-MiniLM-L6-v2"], "seeds": [1], **SMALLER}
#: The pages of the quality panel in Airflow.
PANEL = "/plugin/quality/spark-bert/quality"
ROWS = "sentence\tlabel\na film of rare and quiet grace\t1\ntwo hours that nobody will give back to me\t0\n"


def main() -> int:
    """Start Airflow and the browser, and take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="the folder in which the runs are kept (a temporary one)")
    home = parser.parse_args().home
    chromium = shutil.which("chromium")
    if not chromium:
        print("error: chromium is not installed; on Debian: sudo apt-get install chromium", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="pictures-") as scratch:
        home = home or Path(scratch, "home")
        home.mkdir(parents=True, exist_ok=True)
        checkout = own_checkout(Path(scratch, "checkout"))
        (checkout / "include/experiments/retrain.yaml").write_text(EXPERIMENT)
        with airflow_ui(home.absolute(), checkout) as call, camera(chromium, call, IMAGES) as shots:
            finetune(call, shots)
            retrain(call, shots, checkout / "data/drop")
            with service(home.absolute(), checkout) as url:
                shots.take_answer("openapi", f"{url}/docs", "/query")
            ablation(call, shots)
            panel(call, shots)
    return 0


def finetune(call: Call, shots: Camera) -> None:
    """Take pictures of the Dag, its trigger form, the evaluation report and the quality panel."""
    run = trigger(call, SMALL | {"gate.accuracy": 0.7})
    shots.take_panel(
        "quality-live", f"{_page(run)}/plugin/quality-run", ready=".tile.progress .value:text-matches('^[3-8][0-9] ')"
    )
    tasks = _succeed(call, run)
    shots.take_graph("dag", "finetune", _page(run))
    shots.take_form("form", "/dags/finetune", ["Preprocessing", "Gate"])
    shots.take_report("report", _button(call, tasks["evaluate"], "Report"), last="Thresholds")
    shots.take_panel("quality-run", f"{_page(run)}/plugin/quality-run", ready="table.rows")


def retrain(call: Call, shots: Camera, drop: Path) -> None:
    """Take pictures of a retraining that waits for a person, the second, and of its request."""
    drop.mkdir(parents=True)
    (drop / "monday.tsv").write_text(ROWS)
    call("PATCH", "/api/v2/dags/retrain", {"is_paused": False})
    _succeed(call, _first_run(call, "retrain"))
    run = trigger(call, ASKED, "retrain")
    state = wait_for(lambda: _settled(call, f"{run}/taskInstances/approve"))
    if state != "awaiting_input":
        raise RuntimeError(f"the run {run} does not ask for approval: its task approve is in the state {state}")
    shots.take_grid("retrain", _page(run))
    shots.take_grid("approval", f"{_page(run)}/tasks/approve/required_actions")


def ablation(call: Call, shots: Camera) -> None:
    """Take pictures of a backfill of table 5, and of the report of the study that it starts."""
    days = {"from_date": f"{day(TABLE_5[0])}T00:00:00Z", "to_date": f"{day(TABLE_5[-1])}T00:00:00Z"}
    backfill = {"dag_id": "ablation", "max_active_runs": 1, "dag_run_conf": SMALLER, **days}
    made = call("POST", "/api/v2/backfills", backfill)
    wait_for(lambda: call("GET", f"/api/v2/backfills/{made['id']}")["completed_at"], seconds=1200)
    tasks = _succeed(call, _first_run(call, "study"))
    shots.take_grid("ablation", "/dags/ablation")
    shots.take_report("study", _button(call, tasks["study"], "Study"), last="Plots")


def panel(call: Call, shots: Camera) -> None:
    """Take pictures of the panel's other pages, which show all that has run, and a leaderboard."""
    _succeed(call, trigger(call, COMPARED, "leaderboard"))
    shots.take_panel("quality", f"{PANEL}/runs", ready="table.runs")
    shots.take_panel("quality-models", f"{PANEL}/models", ready="table.board")
    shots.take_panel("quality-data", f"{PANEL}/data", ready="table.rows")
    arms = call("GET", "/spark-bert/quality/api/runs?dag=ablation&sort=-score&size=3")["rows"]
    chosen = urlencode([("run", arm["run"]) for arm in arms])
    compared = f"{PANEL}/compare?{chosen}"
    shots.take_panel("quality-compare", compared, ready="table.compare", last="#rows tbody tr:nth-child(8)")


def _first_run(call: Call, dag: str) -> str:
    """Wait for a run that starts by itself, and return its path in the API."""
    (run,) = wait_for(lambda: call("GET", f"/api/v2/dags/{dag}/dagRuns")["dag_runs"])
    return f"/api/v2/dags/{dag}/dagRuns/{run['dag_run_id']}"


def _settled(call: Call, task: str) -> str | None:
    state = call("GET", task)["state"]
    return state if state in {"awaiting_input", "success", "skipped", "failed", "upstream_failed"} else None


def _succeed(call: Call, run: str) -> dict[str, Any]:
    """Wait for the run's end and return its Airflow tasks by name."""
    state, tasks = to_end(call, run)
    if state != "success":
        states = {name: task["state"] for name, task in tasks.items()}
        raise RuntimeError(f"the run {run} has failed: {states}")
    return tasks


def _page(run: str) -> str:
    return run.removeprefix("/api/v2").replace("/dagRuns/", "/runs/")


def _button(call: Call, task: dict[str, Any], name: str) -> str:
    links = call("GET", f"{task['path']}/links")["extra_links"]
    return str(links[name])


if __name__ == "__main__":
    sys.exit(main())
