"""The artifact files in the browser: nobody without rights on the Dag, nothing but what results name, by no link."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.configuration import conf
from starlette.testclient import TestClient

from include.artifacts import MANIFEST, ArtifactStore, Manifest
from include.experiment import Experiment
from include.runs import Run
from include.stages import STAGES
from spark_bert.deployment.places import run_folder
from spark_bert.web.links import LINKS, ArtifactLink, address
from tests.airflow_home import login

KEY = "0123456789abcdef"
RUN = "manual__2026-11-21T23:38:00+00:00"
REPORT = address("finetune", RUN, "evaluate", "report.html")
#: What each stage has made, and what of it its result names.
MADE = {
    "validate": (
        {"data_docs/index.html": "<h1>Docs</h1>", "data_docs/static/a b.css": "p {}", "train.parquet": "PAR1"},
        {"data_docs": "data_docs/index.html"},
    ),
    "evaluate": ({"report.html": "<h1>Report</h1>", "metrics.json": "{}"}, {"report": "report.html"}),
    "predict": ({"predictions.parquet": "PAR1"}, {"parquet": "predictions.parquet"}),
    "export": ({"submission.zip": "PK", "inner/verdict.json": "{}", "inner/other.json": "{}"},
               {"submission": "submission.zip", "verdict": "inner/verdict.json"}),
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a run and what it has made, an unfinished artifact, and things that must never be shown."""
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    for stage in MADE:
        commit(tmp_path, stage)
    (tmp_path / "artifacts/gate" / KEY).mkdir(parents=True)
    (tmp_path / "artifacts/gate" / KEY / "verdict.json").write_text("half-written")
    for place in ("", "artifacts", "artifacts/evaluate"):
        (tmp_path / place / "login.json").write_text("secret")
    return tmp_path


def commit(home: Path, stage: str, link: tuple[str, str] | None = None) -> None:
    """Let the run have an artifact of the stage, in which a stage has put a link before it was committed."""
    files, named = MADE[stage]
    store = ArtifactStore(home)
    with store.writing(stage, KEY) as folder:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        if link:
            (folder / link[0]).unlink(missing_ok=True)
            (folder / link[0]).symlink_to(link[1])
        artifact = store.commit(folder, Manifest(stage, KEY, 1, {}, {}, "", "", {"stage": stage, "files": named}))
    Run(run_folder("finetune", RUN)).add(artifact, Experiment())


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}, {"Cookie": "_token=nonsense"}])
@pytest.mark.parametrize("url", [REPORT, address("nothing", "is", "there", "")])
def test_without_a_login_nothing_is_shown(server: TestClient, home: Path, url: str, headers: dict[str, str]) -> None:
    answer = server.get(url, headers=headers)
    assert answer.status_code in (401, 403)
    assert "Report" not in answer.text


def test_a_user_without_a_role_sees_nothing(server: TestClient, home: Path) -> None:
    assert server.get(REPORT, headers=login(None)).status_code == 403


def test_a_user_sees_the_runs_of_the_dags_that_are_theirs(
    server: TestClient, home: Path, viewer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.api_fastapi.app import get_auth_manager

    def only_retrain(*, method: str, user: Any, details: Any = None, **_: Any) -> bool:
        return method == "GET" and user.get_name() == "somebody" and (details is None or details.id == "retrain")

    monkeypatch.setattr(type(get_auth_manager()), "is_authorized_dag", staticmethod(only_retrain))
    assert server.get(REPORT, headers=viewer).status_code == 403
    others = address("retrain", RUN, "evaluate", "report.html")
    assert server.get(others, headers=viewer).status_code == 404  # that run has made none
    (run_folder("finetune", RUN)).rename(run_folder("retrain", RUN))
    assert server.get(others, headers=viewer).text == "<h1>Report</h1>"


@pytest.mark.parametrize("way", ["cookie", "token"])
def test_a_logged_in_user_sees_the_report(server: TestClient, home: Path, viewer: dict[str, str], way: str) -> None:
    token = viewer["Authorization"].removeprefix("Bearer ")
    answer = server.get(REPORT, headers={"Cookie": f"_token={token}"} if way == "cookie" else viewer)
    assert (answer.status_code, answer.text) == (200, "<h1>Report</h1>")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox") and "script" not in policy and "default-src 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("stage", "file", "kind"),
    [
        ("validate", "data_docs/index.html", "text/html"),
        ("validate", "data_docs/static/a b.css", "text/css"),
        ("predict", "predictions.parquet", "application/vnd.apache.parquet"),
        ("export", "submission.zip", "application/zip"),
        ("export", "inner/verdict.json", "application/json"),
    ],
)
def test_content_types(
    server: TestClient, home: Path, viewer: dict[str, str], stage: str, file: str, kind: str
) -> None:
    for method in ("GET", "HEAD"):
        answer = server.request(method, address("finetune", RUN, stage, file), headers=viewer)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
        assert answer.text == (MADE[stage][0][file] if method == "GET" else "")


BASE = f"/spark-bert/runs/finetune/{quote(RUN, safe='')}"


@pytest.mark.parametrize(
    "path",
    [
        f"{BASE}/evaluate/metrics.json",  # what no result names, as a model's weights
        f"{BASE}/validate/train.parquet",
        f"{BASE}/export/inner/other.json",
        f"{BASE}/evaluate/{MANIFEST}",
        f"{BASE}/evaluate/",
        f"{BASE}/validate/data_docs",
        f"{BASE}/validate/data_docs/",
        f"{BASE}/validate/data_docs/../train.parquet",
        f"{BASE}/validate/data_docs/%2e%2e/train.parquet",
        f"{BASE}/evaluate/../../../login.json",
        f"{BASE}/evaluate/..%2f..%2f..%2flogin.json",
        f"{BASE}/evaluate/%2e%2e/login.json",
        f"{BASE}/evaluate/..%5c..%5clogin.json",
        f"{BASE}/evaluate//etc/passwd",
        f"{BASE}/evaluate/%2fetc%2fpasswd",
        f"{BASE}/evaluate/%00",
        f"{BASE}/evaluate/{'x' * 5000}",
        f"{BASE}/gate/verdict.json",  # not committed
        f"{BASE}/nostage/report.html",
        f"{BASE}/..%2f..%2f/report.html",
        "/spark-bert/runs/finetune/other/evaluate/report.html",
        "/spark-bert/runs/finetune/..%2f..%2fartifacts/evaluate/report.html",
        f"/spark-bert/artifacts/evaluate/{KEY}/report.html",
    ],
)
def test_nothing_else_is_served(server: TestClient, home: Path, viewer: dict[str, str], path: str) -> None:
    nothing(server, path, viewer)


@pytest.mark.parametrize(
    "target", ["../../../login.json", "../login.json", "/etc/passwd", "report.html", "metrics.json"]
)
def test_a_link_in_a_reports_place_leads_nowhere(
    server: TestClient, home: Path, viewer: dict[str, str], target: str
) -> None:
    remove(home / "artifacts/evaluate" / KEY)
    commit(home, "evaluate", ("report.html", target))
    nothing(server, REPORT, viewer)


@pytest.mark.parametrize(
    "place", ["artifacts/validate", "artifacts/validate/{key}", "artifacts/validate/{key}/data_docs", "runs/{run}"]
)
def test_a_link_in_a_folders_place_leads_nowhere(
    server: TestClient, home: Path, viewer: dict[str, str], place: str
) -> None:
    folder = home / place.format(key=KEY, run=run_folder("finetune", RUN).name)
    folder.rename(home / "elsewhere")
    folder.symlink_to(home / "elsewhere")
    nothing(server, address("finetune", RUN, "validate", "data_docs/index.html"), viewer)


@pytest.mark.parametrize("key", ["..", ".", "", "/etc", f"../validate/{KEY}", None, 7])
def test_a_record_leads_to_no_other_place(server: TestClient, home: Path, viewer: dict[str, str], key: Any) -> None:
    file = Run(run_folder("finetune", RUN)).file
    record = json.loads(file.read_text())
    record["stages"]["evaluate"]["key"] = key
    file.write_text(json.dumps(record))
    nothing(server, REPORT, viewer)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"\xff", b'{"files": 7}', b'{"files": {}, "result": []}', b"[" * 9999]
)
@pytest.mark.parametrize("place", ["manifest", "record"])
def test_what_is_damaged_shows_nothing(
    server: TestClient, home: Path, viewer: dict[str, str], place: str, text: bytes
) -> None:
    manifest = home / "artifacts/evaluate" / KEY / MANIFEST
    (manifest if place == "manifest" else Run(run_folder("finetune", RUN)).file).write_bytes(text)
    nothing(server, REPORT, viewer)


def test_a_pipe_in_a_files_place_stops_nobody(server: TestClient, home: Path, viewer: dict[str, str]) -> None:
    report = home / "artifacts/evaluate" / KEY / "report.html"
    report.unlink()
    os.mkfifo(report)
    nothing(server, REPORT, viewer)


def nothing(server: TestClient, path: str, headers: dict[str, str]) -> None:
    answer = server.get(path, headers=headers)
    assert answer.status_code == 404, answer.text
    assert "secret" not in answer.text and "root:" not in answer.text and "<h1>" not in answer.text


def remove(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_is_read_only(server: TestClient, home: Path, viewer: dict[str, str], method: str) -> None:
    assert server.request(method, REPORT, headers=viewer).status_code == 405


def link(result: dict[str, Any]) -> str:
    operator: Any = SimpleNamespace(result=result)
    instance: Any = SimpleNamespace(dag_id="finetune", run_id=RUN)
    return ArtifactLink("Data Docs", "data_docs").get_link(operator, ti_key=instance)


def test_links_lead_to_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"stage": "validate", "files": {"data_docs": "data_docs/a b.html"}}
    assert link(result) == f"{BASE}/validate/data_docs/a%20b.html"
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org/airflow/")
    assert conf.get("api", "base_url") == "https://example.org/airflow/"
    assert link(result).startswith("/airflow/spark-bert/runs/finetune/")


@pytest.mark.parametrize("result", [{}, {"stage": "validate"}, {"stage": "validate", "files": {"report": "r.html"}}])
def test_no_file_no_link(result: dict[str, Any]) -> None:
    assert link(result) == ""


def test_link_tables_name_real_stages_and_distinct_keys() -> None:
    assert set(LINKS) <= set(STAGES)
    assert LINKS["gate"][0].name == "Verdict" and LINKS["gate"][0].xcom_key == "_link_verdict"
    assert LINKS["challenge"][0].name == "Challenge" and LINKS["challenge"][0].file == "challenge"
