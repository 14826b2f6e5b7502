"""How the panel writes values, tested with the test runner of Node.js."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from spark_bert.web.panel.app import STATIC
from tests.debian import install


def test_values_are_written_as_people_read_them(tmp_path: Path) -> None:
    install({"node": "nodejs"})
    (tmp_path / "package.json").write_text('{"type": "module"}')
    for file in (*STATIC.glob("*.js"), *Path(__file__).parent.glob("*.test.js")):
        shutil.copy(file, tmp_path)
    done = subprocess.run(["node", "--test"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "fail 0" in done.stdout and "pass 0" not in done.stdout
