"""The login to MLflow: from files, one for tracking and one for moving the champion; and who can move it at all."""

from __future__ import annotations

import ast
import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import tasks
from include.experiment import Experiment
from include.runs import Run
from include.secrets import LOGIN
from include.stages import BadInput
from tasks.tracking import registry
from tasks.tracking.champions import Champions
from tasks.tracking.registry import Registry


class _Mlflow(BaseHTTPRequestHandler):
    """A server with an empty registry, which keeps the logins that it is shown."""

    def do_GET(self) -> None:
        self.server.logins.append(self.headers.get("Authorization"))  # type: ignore[attr-defined]
        body = json.dumps({}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | None]]:
    for variable in LOGIN:
        monkeypatch.setenv(variable, "")  # so that what a test sets is undone
        monkeypatch.delenv(variable)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Mlflow) as server:
        server.logins = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_address[1]}")
        yield server.logins  # type: ignore[attr-defined]
        server.shutdown()


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    monkeypatch.setenv("SPARK_BERT_SECRETS", str(folder))
    return folder


def ask(kind: type[Registry], home: Path) -> None:
    assert kind.of(Experiment(), Run(home / "runs/first")).champion() is None


def test_the_login_is_the_files_and_whoever_moves_the_champion_has_one_of_its_own(
    tmp_path: Path, logins: list[str | None], secrets: Path
) -> None:
    ask(Registry, tmp_path)
    (secrets / "mlflow_token").write_text("of-tracking\n")
    ask(Registry, tmp_path)
    ask(Champions, tmp_path)  # the deployment has no other
    (secrets / "mlflow_promoter_username").write_text("ada\n")
    (secrets / "mlflow_promoter_password").write_text("s3cr3t\n")
    ask(Champions, tmp_path)
    ask(Registry, tmp_path)
    basic = base64.b64encode(b"ada:s3cr3t").decode()
    assert logins == [None, "Bearer of-tracking", "Bearer of-tracking", f"Basic {basic}", "Bearer of-tracking"]


def test_without_files_the_variables_are_the_login(
    tmp_path: Path, logins: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_BERT_SECRETS", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "of-the-shell")
    ask(Registry, tmp_path)
    assert logins == ["Bearer of-the-shell"]


@pytest.mark.parametrize(
    ("there", "missing"),
    [("mlflow_username", "mlflow_password"), ("mlflow_promoter_password", "mlflow_promoter_username")],
)
def test_half_a_login_is_refused(
    tmp_path: Path, logins: list[str | None], secrets: Path, there: str, missing: str
) -> None:
    (secrets / there).write_text("s3cr3t")
    with pytest.raises(BadInput, match=f"{there} is only half of a login: add the file {missing}"):
        ask(Champions, tmp_path)
    assert logins == []


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, logins: list[str | None], secrets: Path) -> None:
    (secrets / "mlflow_token").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="mlflow_token is not UTF-8 text: write the login into it"):
        ask(Registry, tmp_path)


def test_no_other_module_speaks_of_moving_an_alias() -> None:
    """An import contract keeps champions.py to promote and rollback; this keeps MLflow's own functions to it."""
    root = Path(tasks.__path__[0])
    callers = {
        file.relative_to(root).as_posix()
        for file in root.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr.endswith("_registered_model_alias")
    }
    assert callers == {"tracking/champions.py", "tracking/registry.py"}


def test_the_registry_moves_the_challenger_alone() -> None:
    tree = ast.parse(Path(str(registry.__file__)).read_text(encoding="utf-8"))
    moved = [
        ast.unparse(node.args[1])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("_registered_model_alias")
    ]
    assert moved == ["CHALLENGER", "CHALLENGER"]
