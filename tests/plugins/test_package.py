"""The plugin as a package in an Airflow of somebody else: no checkout, no PYTHONPATH, a plain AIRFLOW_HOME."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = str(ROOT / "scripts/uv.sh")
#: Loads the Dags as a Dag processor does, and says what came of it.
LOAD = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from airflow.plugins_manager import get_plugin_info
from spark_bert.deployment.places import home
found = DagBag(sys.argv[1])
plugins = [plugin["name"] for plugin in get_plugin_info()]
print(json.dumps({"dags": sorted(found.dags), "errors": found.import_errors, "plugins": plugins, "home": str(home())}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what git tracks; setuptools comes from the environment that compiles Horovod."""
    folder = tmp_path_factory.mktemp("package")
    for name in ("plugins", "include", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    python = ROOT / ".venv/tasks/bin/python"
    _run(UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", python, "--out-dir", folder, folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with Airflow and the wheel."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    _run(UV, "pip", "install", "--quiet", "--no-deps", "--python", python, wheel)
    (packages,) = folder.glob("lib/python*/site-packages")
    airflow = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "airflow.pth").write_text(airflow)
    return python


def _run(*command: object, **environment: str) -> str:
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "SPARK_BERT", "PYTHONPATH"))
    }
    done = subprocess.run(
        [str(part) for part in command], env=clean | environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_every_module_and_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    plugins, include = ROOT / "plugins", ROOT / "include"
    expected = {path.relative_to(plugins).as_posix() for path in plugins.rglob("*.py")}
    expected |= {path.relative_to(plugins).as_posix() for path in plugins.glob("spark_bert/web/panel/static/*")}
    expected |= {path.relative_to(ROOT).as_posix() for kind in ("*.py", "*.yaml") for path in include.rglob(kind)}
    assert inside == expected


def test_a_plain_airflow_loads_the_dags_and_registers_the_plugin(python: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dags", tmp_path / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    said = _run(python, "-c", LOAD, tmp_path / "dags", AIRFLOW_HOME=str(tmp_path))
    loaded = json.loads(said.splitlines()[-1])
    assert loaded["errors"] == {}
    assert loaded["dags"] == sorted(path.stem for path in (ROOT / "dags").glob("[!_]*.py"))
    assert "spark_bert" in loaded["plugins"]
    assert loaded["home"] == str(tmp_path / "work")


def test_modules_of_a_teams_own_include_folder_stay_importable(python: Path, tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "ours.py").write_text("NAME = 'ours'")
    code = "import include.ours, include.stages; print(include.ours.NAME)"
    assert _run(python, "-c", code, PYTHONPATH=str(tmp_path)).strip() == "ours"
