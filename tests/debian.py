"""Programs that tests need from Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def install(programs: dict[str, str]) -> None:
    """Install the packages of Debian whose programs are missing."""
    missing = sorted({package for program, package in programs.items() if shutil.which(program) is None})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.fail(f"missing here: {', '.join(missing)}. Only root can install them, with Debian's apt-get")
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
        done = subprocess.run(
            ["apt-get", *command],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.fail(f"apt-get {' '.join(command)} failed: {done.stderr[-2000:]}")
