"""The image that the Dockerfiles start from: pulled, or made from Debian's packages where none can be."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.debian import install

BASE = "debian:bookworm-slim"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"

#: As in the public image, apt keeps nothing.
CLEAN = 'APT::Keep-Downloaded-Packages "false";\nDir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n'


def make_base_image() -> None:
    """Let the engine have the base image under its public name."""
    if _docker("image", "inspect", BASE) or _docker("pull", "--quiet", BASE):
        return
    install({"debootstrap": "debootstrap"})
    with tempfile.TemporaryDirectory(prefix="spark-bert-base-", dir="/var/tmp") as folder:
        _bootstrap(Path(folder))
        _trust_what_this_machine_trusts(Path(folder))
        imported = f"tar --directory {folder} --create . | docker import --change 'CMD [\"bash\"]' - {BASE}"
        subprocess.run(["bash", "-o", "pipefail", "-c", imported], check=True, stdout=subprocess.DEVNULL)


def _bootstrap(folder: Path) -> None:
    command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{BASE} can neither be pulled nor made by debootstrap: {done.stdout[-2000:]}{done.stderr}")
    for downloaded in (folder / "var/cache/apt/archives").glob("*.deb"):
        downloaded.unlink()
    (folder / "etc/apt/apt.conf.d/docker-clean").write_text(CLEAN)


def _trust_what_this_machine_trusts(folder: Path) -> None:
    """A machine behind a proxy knows its certificate, and so must builds."""
    if Path("/", CERTIFICATES).is_file():
        shutil.copyfile(Path("/", CERTIFICATES), folder / CERTIFICATES)


def _docker(*arguments: str) -> bool:
    return subprocess.run(["docker", *arguments], capture_output=True, check=False).returncode == 0
