"""`make ui`: a real scheduler and web server, a run triggered through the REST API, and the panel in a real browser."""

from __future__ import annotations

import shutil
import sqlite3
import time
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, FrameLocator, Page, sync_playwright

from include.stages import PIPELINE
from tests.debian import install
from tests.e2e.make_run import ROOT
from tests.e2e.server import Call, airflow_ui, to_end, trigger, wait_for
from tests.plugins.receivers import TraceServer, serving
from tests.spans import read_spans

#: Where Airflow serves the panel, and where it shows its pages.
PANEL, FRAME = "/spark-bert/quality", "iframe[title=Quality]"
#: As make_run.SLICE, so that a run finds the artifacts of the home as far as it does not change this.
CONF = {
    "preprocessing.sample": 0.1, "preprocessing.max_length": 32,
    "training.epochs": 1, "training.evaluations": 1, "gate.accuracy": 0.6,
}  # fmt: skip


@pytest.fixture(scope="module")
def collector() -> Iterator[TraceServer]:
    with serving(TraceServer()) as server:
        yield server


@pytest.fixture(scope="module")
def call(home: Path, collector: TraceServer) -> Iterator[Call]:
    with airflow_ui(home, ROOT, **collector.environment) as call:
        yield call


@pytest.fixture(scope="module")
def browser(call: Call) -> Iterator[BrowserContext]:
    """Debian's Chromium, logged in to Airflow."""
    install({"chromium": "chromium"})
    with sync_playwright() as driver:
        program = driver.chromium.launch(executable_path=shutil.which("chromium"))
        context = program.new_context(color_scheme="light", viewport={"width": 1400, "height": 900})
        context.set_default_timeout(180_000)  # a busy machine takes its time
        context.add_cookies([{"name": "_token", "value": call.token, "url": call.url}])
        yield context
        program.close()


def _open(browser: BrowserContext, url: str) -> tuple[Page, FrameLocator, list[str]]:
    """Open a page, and return it, the panel in it, and its errors, to which more may be added."""
    page, errors = browser.new_page(), list[str]()

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" or "Content Security Policy" in message.text:
            errors.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(url)
    return page, page.frame_locator(FRAME), errors


def _run_to_end(call: Call, conf: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return to_end(call, trigger(call, conf))


def test_a_triggered_run_succeeds_its_report_opens_and_other_dags_hear_of_it(
    call: Call, home: Path, collector: TraceServer
) -> None:
    state, tasks = _run_to_end(call, CONF)
    assert state == "success", tasks
    result = call("GET", f"{tasks['gate']['path']}/xcomEntries/return_value?deserialize=true")["value"]
    assert result["passed"] is True
    links = call("GET", f"{tasks['evaluate']['path']}/links")["extra_links"]
    assert "<html" in call("GET", links["Report"])
    source = quote(tasks["evaluate"]["dag_run_id"])
    (event,) = call("GET", f"/api/v2/assets/events?source_run_id={source}")["asset_events"]
    assert (event["partition_key"], event["extra"]["task"]) == (None, "movie-reviews")
    run = home / "runs" / event["extra"]["run"]
    assert (run / "run.json").is_file()
    _check_trace(collector, run / "traces")


def _check_trace(collector: TraceServer, traces: Path) -> None:
    """One trace holds Airflow's spans of the run and those that the stages have written into the run's folder."""
    written = [span for file in traces.iterdir() for span in read_spans(file)]
    assert {file.stem for file in traces.iterdir()} >= set(PIPELINE)
    (train,) = [span for span in written if span["name"] == "train"]

    def above(span: dict[str, Any]) -> list[str]:
        known = {span["spanId"]: span for span in collector.spans if span["traceId"] == train["traceId"]}
        parent = known.get(span["parentSpanId"])
        return [*above(parent), parent["name"].partition(".")[0]] if parent else []

    # Airflow's components export every few seconds.
    wait_for(lambda: all(above(span)[:3] == ["dag_run", "task_run", "worker"] for span in written), seconds=60)
    exported = [span["spanId"] for span in collector.spans]
    assert all(exported.count(span["spanId"]) == 1 for span in written)


def test_a_runs_page_is_live_while_it_trains_and_survives_a_reload(call: Call, browser: BrowserContext) -> None:
    # Nobody has trained so, which means that there is no artifact to find, and it takes long enough to be watched.
    run = trigger(call, {**CONF, "training.seed": 2, "training.epochs": 4})
    page, panel, errors = _open(browser, call.url)
    page.get_by_text("Quality", exact=True).first.click()
    panel.locator("tr.running td.run a").first.click()
    panel.get_by_text("running", exact=True).first.wait_for()
    loss = panel.locator("figure.chart", has_text="Loss").locator("path.line").first

    def drawn() -> str:
        return loss.get_attribute("d") or "" if loss.count() else ""

    before = wait_for(drawn)
    assert wait_for(lambda: drawn() if len(drawn()) > len(before) else "", seconds=60)
    assert int(panel.locator(".tile.progress progress").get_attribute("max") or 0) > 78
    assert f"/plugin/quality{PANEL}/run?run=" in page.url
    page.reload()
    wait_for(lambda: len(drawn()) > len(before), seconds=60)
    call("PATCH", run, {"state": "failed"})
    panel.locator("h1 .state", has_text="running").wait_for(state="detached")
    assert errors == []
    page.close()


def test_a_finished_runs_tab_leads_to_the_rows_of_a_mistake(call: Call, browser: BrowserContext) -> None:
    runs = call("GET", "/api/v2/dags/finetune/dagRuns?order_by=start_date")["dag_runs"]  # the first one has succeeded
    path = f"/dags/finetune/runs/{quote(runs[0]['dag_run_id'])}"
    page, panel, errors = _open(browser, f"{call.url}{path}/plugin/quality-run")
    for title in ("Metrics", "Slices", "Classes", "Confusion", "Calibration"):
        panel.locator(".panel h3", has_text=title).wait_for()
    panel.get_by_role("button", name="gate", exact=True).click()
    trace = panel.get_by_role("group", name="Trace of gate")
    trace.locator(".span", has_text="gate").locator(".bar").first.wait_for()
    cell = panel.locator("table.confusion td.wrong a").last
    count = int(cell.inner_text())
    cell.click()
    panel.get_by_text(f"{count} rows").wait_for()
    assert panel.locator("table.rows tbody tr").count() == min(count, 50)
    assert panel.locator("table.rows td.wrong").first.inner_text() in ("positive", "negative")
    assert panel.locator("html.dark").count() == 0
    page.emulate_media(color_scheme="dark")
    panel.locator("html.dark").wait_for(state="attached")
    page.goto(call.url)
    page.get_by_test_id("quality-card").get_by_text("accuracy").first.wait_for()
    assert errors == []
    page.close()


def test_the_other_pages_are_one_click_away(call: Call, browser: BrowserContext) -> None:
    page, _, errors = _open(browser, f"{call.url}{PANEL}/runs")
    page.get_by_role("link", name="Models", exact=True).click()
    page.get_by_text("No model is registered yet").wait_for()
    page.get_by_role("link", name="Data", exact=True).click()
    page.get_by_text("There is no version of a dataset yet").wait_for()
    assert errors == []
    page.close()


def test_chosen_runs_are_compared_and_the_comparison_survives_a_reload(call: Call, browser: BrowserContext) -> None:
    page, panel, errors = _open(browser, f"{call.url}/plugin/quality{PANEL}/runs")
    boxes = panel.get_by_role("checkbox")
    boxes.first.wait_for()
    for at in range(3):  # the run that was stopped while it trained, and those that share an evaluation
        boxes.nth(at).check()
    page.wait_for_timeout(6000)  # the table is fetched again every 4 seconds
    panel.get_by_text("Compare 3 runs").click()
    for _ in range(2):
        panel.get_by_text("There are no evaluated rows of A.").wait_for()
        assert {"training.epochs", "training.seed"} <= set(panel.locator("table.compare tbody th").all_inner_texts())
        assert panel.locator("table.tests td").last.inner_text() == "1.000"
        panel.locator("figure.chart", has_text="Training loss").locator("path.line.c1").wait_for()
        assert page.url.count("run=") == 3
        page.reload()
    assert errors == []
    page.close()


def test_whoever_is_no_longer_logged_in_reads_so(call: Call, browser: BrowserContext) -> None:
    page, _, errors = _open(browser, f"{call.url}{PANEL}/runs?state=done&sort=-score&columns=run,score")
    page.locator("table.runs tbody tr").first.wait_for()
    assert page.locator("table.runs thead th").all_inner_texts() == ["", "Run", "Score↓"] and errors == []
    cookies = browser.cookies()
    browser.clear_cookies()
    page.get_by_text("Your login has ended").wait_for()  # it asks again every 4 seconds
    assert page.locator("table.runs tbody tr").count() > 0  # what is shown stays
    page.reload()
    page.get_by_role("heading", name="Your login has ended").wait_for()
    browser.add_cookies([{"name": one["name"], "value": one["value"], "url": call.url} for one in cookies])
    page.close()


def test_the_api_waits_for_a_process_that_writes_for_a_while(call: Call, home: Path) -> None:
    with closing(sqlite3.connect(home / "airflow/airflow.db", timeout=120)) as database, ThreadPoolExecutor() as pool:
        database.execute("BEGIN IMMEDIATE")
        answer = pool.submit(call, "POST", "/api/v2/variables", {"key": "waited", "value": "for the database"})
        time.sleep(10)  # SQLite itself waits for 5 seconds.
        database.rollback()
    assert answer.result()["value"] == "for the database"


def test_a_wrong_value_is_refused_by_the_form(call: Call) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        call("POST", "/api/v2/dags/finetune/dagRuns", {"logical_date": None, "conf": {"training.epochs": -1}})
    assert refusal.value.code == 400
    assert "training.epochs" in refusal.value.read().decode()
