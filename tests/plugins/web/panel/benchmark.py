"""How fast the panel is where there are many runs, with Airflow's real web server and a real browser.

    PYTHONPATH=plugins .venv/airflow/bin/python -m tests.plugins.web.panel.benchmark [--quick]

It has homes with 1,000 and 10,000 runs; with --quick, one with 50. It prints, for each home, when the browser has drawn
the table of runs, how long the routes take for one viewer and for five who ask at the same moment, and how long it
takes until five pages show what has just been written. Several values are given as their median, their 95th percentile,
and the largest. Airflow's scheduler runs at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier

import httpx
from playwright.sync_api import BrowserContext, sync_playwright

from spark_bert.deployment.places import run_folder
from tests.e2e.server import Call, airflow_ui
from tests.plugins.web.panel.homes import make_home

PANEL = "/spark-bert/quality"
VIEWERS, VISITS, REQUESTS, CHANGES = 5, 20, 200, 8
#: Runs in a page before all else, and notes when the table has been drawn.
NOTE = """
new MutationObserver((_, observer) => {
  if (!document.querySelector('table.runs tbody tr')) return
  observer.disconnect()
  requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.drawn = performance.now() }))
}).observe(document, {childList: true, subtree: true})
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small home, to see that it works")
    for count in (50,) if parser.parse_args().quick else (1000, 10_000):
        with TemporaryDirectory() as folder:
            measure(Path(folder), count)


def measure(home: Path, count: int) -> None:
    """Measure the panel with a home of so many runs, and print what was found."""
    runs = make_home(home, count)
    with airflow_ui(home) as call, browser(call) as context:
        add_dag_runs(home / "airflow/airflow.db", [ids for ids in runs if ids[0]])
        print(f"\n{count:,} runs, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}\n")
        address = f"{call.url}{PANEL}/runs"
        print("| until the table is drawn | ms |\n| --- | ---: |")
        print(f"| first visit after the start of Airflow | {drawing(context, address):,.0f} |")
        print(f"| {VISITS} later ones | {spread([drawing(context, address) for _ in range(VISITS)])} |")
        print(f"\n| ms of a request | one viewer | {VIEWERS} at the same moment |\n| --- | ---: | ---: |", flush=True)
        for route in routes(runs):
            ask = partial(asking, call, f"{PANEL}/api/{route}")
            print(f"| `{route.partition('?')[0]}` | {spread(ask(1))} | {spread(ask(VIEWERS))} |", flush=True)
        print(f"\n| until {VIEWERS} browser pages show what was written | s |\n| --- | ---: |")
        print(f"| a line of a training's curves | {spread(curve_delays(context, call, home), 1)} |")
        print(f"| a new run in the table | {spread(table_delays(context, call, home), 1)} |")


def routes(runs: Sequence[tuple[str, str]]) -> list[str]:
    """Return the routes that the pages ask, each with what it needs to know."""
    names = [run_folder(*ids).name for ids in runs if ids[0]][:6]
    six = "&".join(f"run={name}" for name in names)
    about = [f"{route}?run={names[0]}" for route in ("run", "curves", "evaluation", "rows")]
    return ["runs", "runs?sort=-score&q=finetune", *about, f"compare?{six}", f"compared-rows?{six}"]


def drawing(context: BrowserContext, address: str) -> float:
    """Return the time from the call of a page until its table is drawn, in ms."""
    with closing(context.new_page()) as page:
        page.goto(address)
        return float(page.locator("html[data-drawn]").get_attribute("data-drawn") or 0)


def asking(call: Call, path: str, viewers: int) -> list[float]:
    """Return how long each of REQUESTS requests takes, in ms. Several viewers send theirs at the same moment."""
    barrier = Barrier(viewers)

    def view() -> list[float]:
        taken = []
        headers = {"Authorization": f"Bearer {call.token}"}
        with httpx.Client(base_url=call.url, headers=headers, timeout=60) as client:
            client.get(path).raise_for_status()
            for _ in range(REQUESTS // viewers):
                barrier.wait()
                start = time.perf_counter()
                client.get(path).raise_for_status()
                taken.append(1000 * (time.perf_counter() - start))
        return taken

    with ThreadPoolExecutor(viewers) as pool:
        return [each for future in [pool.submit(view) for _ in range(viewers)] for each in future.result()]


def curve_delays(context: BrowserContext, call: Call, home: Path) -> list[float]:
    """Return how long it takes until all viewers see a line that a training has just written, in s."""
    curves = home / "checkpoints/train/live/metrics.jsonl"
    work = {"stage": "train", "key": "live", "progress": "live", "since": time.time(), "planned_steps": 1000}
    for file, text in ((curves, ""), (home / "runs/live/at-work/train.json", json.dumps(work))):
        file.parent.mkdir(parents=True)
        file.write_text(text)

    def change(step: int) -> str:
        with curves.open("a") as file:
            file.write(json.dumps({"step": step, "loss": 1 / step, "time": time.time()}) + "\n")
        return f"figure.chart[data-points='{step}']"

    return delays(context, f"{call.url}{PANEL}/run?run=live", change)


def table_delays(context: BrowserContext, call: Call, home: Path) -> list[float]:
    """Return how long it takes until all viewers see a new run, in s."""
    record = next((home / "runs").glob("finetune*/run.json")).read_text()

    def change(number: int) -> str:
        folder = home / f"runs/new-{number}"
        folder.mkdir()
        (folder / "run.json").write_text(record)
        return f"[data-run={folder.name}]"

    return delays(context, f"{call.url}{PANEL}/runs", change)


def delays(context: BrowserContext, address: str, change: Callable[[int], str]) -> list[float]:
    """Change something some times, and return how long it took each time until all viewers saw it, in s.

    Args:
        context: the browser.
        address: the page that shows it.
        change: changes it, given a number from 1 on, and returns the selector of what the page then shows.
    """
    pages = [context.new_page() for _ in range(VIEWERS)]
    for page in pages:
        page.goto(address)
    found = []
    for number in range(1, 2 + CHANGES):
        start = time.perf_counter()
        shown = change(number)
        for page in pages:
            page.locator(shown).first.wait_for(state="attached")
        found.append(time.perf_counter() - start)
        time.sleep(0.37 * number)  # out of step with the pages
    for page in pages:
        page.close()
    return found[1:]  # the first includes the loading of the pages


def add_dag_runs(database: Path, runs: Sequence[tuple[str, str]]) -> None:
    """Let Airflow know of the Dag runs, nearly all of which have succeeded."""
    with closing(sqlite3.connect(database, timeout=60)) as airflow, airflow:
        airflow.executemany(
            "INSERT INTO dag_run (dag_id, run_id, run_type, run_after, state, clear_number, span_status) "
            "VALUES (?, ?, 'manual', '2026-11-23 10:00:00', ?, 0, 'not_started')",
            [(*ids, "success" if number % 20 else "failed") for number, ids in enumerate(runs)],
        )


@contextmanager
def browser(call: Call) -> Iterator[BrowserContext]:
    """Start Debian's Chromium, logged in to Airflow."""
    with sync_playwright() as driver:
        program = driver.chromium.launch(executable_path=shutil.which("chromium"))
        context = program.new_context(viewport={"width": 1400, "height": 900})
        context.add_cookies([{"name": "_token", "value": call.token, "url": call.url}])
        context.add_init_script(NOTE)
        yield context
        program.close()


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Return the median, the 95th percentile and the largest of some values."""
    p95 = statistics.quantiles(values, n=20, method="inclusive")[-1]
    return f"{statistics.median(values):,.{digits}f}, {p95:,.{digits}f}, {max(values):,.{digits}f}"


if __name__ == "__main__":
    main()
