"""The artifact files in the browser: nobody without a login, nothing outside a committed artifact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.configuration import conf
from starlette.testclient import TestClient

from include.artifacts import ArtifactStore, Manifest
from include.stages import STAGES
from spark_bert.links import LINKS, ArtifactLink

KEY = "0123456789abcdef"
REPORT = f"/spark-bert/artifacts/evaluate/{KEY}/report.html"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with one committed artifact, an unfinished one, and things that must never be shown."""
    monkeypatch.setenv("SPARK_BERT_HOME", str(tmp_path))
    store = ArtifactStore(tmp_path)
    with store.writing("evaluate", KEY) as folder:
        (folder / "report.html").write_text("<h1>Report</h1>")
        (folder / "data_docs").mkdir()
        (folder / "data_docs/index.html").write_text("<h1>Docs</h1>")
        (folder / "submission.zip").write_bytes(b"PK")
        (folder / "verdict.json").write_text("{}")
        (folder / "way out").symlink_to("/etc")
        (folder / "hosts").symlink_to("/etc/hosts")
        store.commit(folder, Manifest("evaluate", KEY, 1, {}, {}, "", ""))
    (store.path("evaluate", "f" * 16)).mkdir()
    (store.path("evaluate", "f" * 16) / "report.html").write_text("half-written")
    (tmp_path / "secret.txt").write_text("secret")
    (store.root / "secret.txt").write_text("secret")
    (store.root / "evaluate/secret.txt").write_text("secret")
    return tmp_path


@pytest.fixture(scope="module")
def server(database: None) -> Iterator[TestClient]:
    """Airflow's real API server, plugin and auth manager included."""
    from airflow.api_fastapi.app import cached_app

    with TestClient(cached_app(), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def token(server: TestClient) -> str:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="viewer", role="viewer"))


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}, {"Cookie": "_token=nonsense"}])
@pytest.mark.parametrize("url", [REPORT, "/spark-bert/artifacts/evaluate/nothing/there"])
def test_without_a_login_nothing_is_shown(server: TestClient, home: Path, url: str, headers: dict[str, str]) -> None:
    answer = server.get(url, headers=headers)
    assert answer.status_code in (401, 403)
    assert "Report" not in answer.text


def test_a_user_without_a_role_sees_nothing(server: TestClient, home: Path) -> None:
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    stranger = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="stranger", role=None))
    assert server.get(REPORT, headers={"Authorization": f"Bearer {stranger}"}).status_code == 403


@pytest.mark.parametrize("way", ["cookie", "token"])
def test_a_logged_in_user_sees_the_report(server: TestClient, home: Path, token: str, way: str) -> None:
    headers = {"Cookie": f"_token={token}"} if way == "cookie" else {"Authorization": f"Bearer {token}"}
    answer = server.get(REPORT, headers=headers)
    assert (answer.status_code, answer.text) == (200, "<h1>Report</h1>")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox") and "script" not in policy and "default-src 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("data_docs/index.html", "text/html"),
        ("submission.zip", "application/zip"),
        ("verdict.json", "application/json"),
    ],
)
def test_content_types(server: TestClient, home: Path, token: str, file: str, kind: str) -> None:
    url = f"/spark-bert/artifacts/evaluate/{KEY}/{file}"
    for method in ("GET", "HEAD"):
        answer = server.request(method, url, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)


@pytest.mark.parametrize(
    "path",
    [
        f"evaluate/{KEY}/../../../secret.txt",
        f"evaluate/{KEY}/..%2f..%2f..%2fsecret.txt",
        f"evaluate/{KEY}/%2e%2e/%2e%2e/%2e%2e/secret.txt",
        f"evaluate/{KEY}/..%5c..%5csecret.txt",
        f"evaluate/{KEY}//etc/passwd",
        f"evaluate/{KEY}/%2fetc%2fpasswd",
        f"evaluate/{KEY}/way%20out/passwd",
        f"evaluate/{KEY}/hosts",
        f"evaluate/{KEY}/manifest.json",
        f"evaluate/{KEY}/{'x' * 5000}",
        f"evaluate/{KEY}/data_docs",
        f"evaluate/{KEY}/%00",
        f"evaluate/{KEY}/",
        f"evaluate/{'f' * 16}/report.html",
        "evaluate/../secret.txt",
        "evaluate/..%2f/secret.txt",
        "..%2f/0123456789abcdef/secret.txt",
        f"nostage/{KEY}/report.html",
    ],
)
def test_nothing_else_is_served(server: TestClient, home: Path, token: str, path: str) -> None:
    answer = server.get(f"/spark-bert/artifacts/{path}", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code in (404, 422), answer.text
    assert "secret" not in answer.headers.get("content-disposition", "") and "root:" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_is_read_only(server: TestClient, home: Path, token: str, method: str) -> None:
    answer = server.request(method, REPORT, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 405


def link(result: dict[str, Any]) -> str:
    operator: Any = SimpleNamespace(result=result)
    return ArtifactLink("Data Docs", "data_docs").get_link(operator, ti_key=None)  # type: ignore[arg-type]


def test_links_lead_to_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"artifact": f"/home/artifacts/evaluate/{KEY}", "files": {"data_docs": "data_docs/a b.html"}}
    assert link(result) == f"/spark-bert/artifacts/evaluate/{KEY}/data_docs/a%20b.html"
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org/airflow/")
    assert conf.get("api", "base_url") == "https://example.org/airflow/"
    assert link(result).startswith("/airflow/spark-bert/artifacts/")


@pytest.mark.parametrize("result", [{}, {"artifact": "/a/b"}, {"artifact": "/a/b", "files": {"report": "r.html"}}])
def test_no_file_no_link(result: dict[str, Any]) -> None:
    assert link(result) == ""


def test_link_tables_name_real_stages_and_distinct_keys() -> None:
    assert set(LINKS) <= set(STAGES)
    assert LINKS["gate"][0].name == "Verdict" and LINKS["gate"][0].xcom_key == "_link_verdict"
    assert LINKS["challenge"][0].name == "Challenge" and LINKS["challenge"][0].file == "challenge"
