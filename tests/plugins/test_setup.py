"""Which torch the set-up installs, and Horovod with it. What would download or compile is replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
REAL = ("setup.sh", "environment.sh", "horovod.sh")
#: torch's version.py as both wheels have it; FETCHABLE says which of them can be fetched, BROKEN which do not install.
TORCH = """
choice=$SPARK_BERT_TORCH
case " $* " in *" --dry-run "*) [[ $FETCHABLE = *$choice* ]] && exit || exit 1 ;; esac
[[ ${BROKEN:-} = *$choice* ]] && exit 1
package=.venv/tasks/lib/python3.11/site-packages/torch
mkdir -p $package
if [ $choice = cuda ]; then echo "__version__ = '2.13.0+cu130'
cuda: Optional[str] = '13.0'"; else echo "__version__ = '2.13.0+cpu'
cuda: Optional[str] = None"; fi >$package/version.py
"""
STANDINS = {
    "torch.sh": TORCH,
    # Of packages it only notes Horovod's wheel; a dry run is that of the torch for CPUs.
    "uv.sh": """case " $* " in
        *" --dry-run "*) [[ $FETCHABLE = *cpu* ]] ;;
        *horovod*.whl*) echo "${@: -1}" >.venv/tasks/horovod ;;
    esac""",
    "horovod_wheel.sh": 'mkdir -p "$1" && touch "$1/horovod.whl" && echo compiled >>compiled',
    "airflow.sh": "",
    "system_packages.sh": "",
    "tools.sh": "",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose set-up takes a second."""
    shutil.copytree(REPOSITORY / "requirements", tmp_path / "requirements")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "tasks" / "kernels").mkdir(parents=True)
    for name in ("__init__.py", "__main__.py", "assets.py", "kernels/build.py"):
        (tmp_path / "tasks" / name).touch()
    for name in REAL:
        shutil.copy(REPOSITORY / "scripts" / name, tmp_path / "scripts")
    for name, code in STANDINS.items():
        (tmp_path / "scripts" / name).write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{code}\n")
        (tmp_path / "scripts" / name).chmod(0o755)
    return tmp_path


def set_up(
    checkout: Path, *scope: str, torch: str = "", gpu: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the set-up with this choice, on a machine with NVIDIA's driver or without one."""
    tools = checkout / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "nvidia-smi").unlink(missing_ok=True)
    if gpu:
        (tools / "nvidia-smi").symlink_to("/bin/true")
    path, cache = f"{tools}:{os.environ['PATH']}", str(checkout / "cache")
    told = {"PATH": path, "SPARK_BERT_CACHE": cache, "SPARK_BERT_TORCH": torch, "FETCHABLE": "cpu cuda", **more}
    command = [str(checkout / "scripts" / "setup.sh"), *scope]
    return subprocess.run(command, env={**os.environ, **told}, capture_output=True, text=True, timeout=120, check=False)


def installed(checkout: Path) -> str:
    """The version of the torch that is installed, and the wheel of Horovod beside it."""
    environment = checkout / ".venv" / "tasks"
    version = (environment / "lib/python3.11/site-packages/torch/version.py").read_text().split("'")[1]
    horovod = environment / "horovod"
    return f"{version}, {Path(horovod.read_text()).parent.name if horovod.exists() else 'no Horovod'}"


def wheels(kind: str) -> str:
    return f"horovod-0.28.1{kind}-py311-{os.uname().machine}"


CPU = f"2.13.0+cpu, {wheels('-torch2.13.0+cpu')}"
CUDA = f"2.13.0+cu130, {wheels('-nccl-torch2.13.0+cu130')}"


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has a GPU")
def test_a_choice_is_made_once(checkout: Path) -> None:
    without_a_choice = [("", False, CPU), ("", True, CUDA), ("", False, CUDA)]
    for asked, gpu, found in [*without_a_choice, ("cpu", True, CPU), ("", True, CPU), ("cuda", False, CUDA)]:
        done = set_up(checkout, torch=asked, gpu=gpu)
        assert (done.returncode, installed(checkout)) == (0, found), done.stderr
    assert (checkout / "compiled").read_text() == "compiled\n" * 2, "each wheel is compiled once"
    wrong = set_up(checkout, torch="gpu")
    assert (wrong.returncode, wrong.stderr) == (2, "SPARK_BERT_TORCH is gpu: write cuda or cpu\n")


def test_what_cannot_be_fetched_leaves_the_environment_as_it_is(checkout: Path) -> None:
    for before, asked, found in (("cpu", "cuda", CPU), ("cuda", "cpu", CUDA)):
        set_up(checkout, torch=before)
        done = set_up(checkout, torch=asked, FETCHABLE="")
        assert (done.returncode, installed(checkout)) == (0, found)
        assert f"torch stays as it is until make setup can fetch the one for {asked}" in done.stderr


def test_a_compiler_that_fails_on_the_kernels_stops_nothing(checkout: Path) -> None:
    (checkout / "tasks/kernels/build.py").write_text("raise SystemExit(1)")
    done = set_up(checkout, torch="cpu")
    assert (done.returncode, installed(checkout)) == (0, CPU)
    assert "The kernels cannot be compiled, so training on CPUs is slower." in done.stderr


@pytest.mark.parametrize(("before", "asked", "found"), [("cpu", "cuda", CUDA), ("cuda", "cpu", CPU)])
def test_a_switch_that_was_interrupted_is_finished_by_the_next_set_up(
    checkout: Path, before: str, asked: str, found: str
) -> None:
    set_up(checkout, torch=before)
    assert set_up(checkout, torch=asked, BROKEN=asked).returncode == 1
    done = set_up(checkout)
    assert (done.returncode, installed(checkout)) == (0, found), done.stderr


def test_after_a_switch_for_one_rank_horovod_is_installed_when_it_is_needed(checkout: Path) -> None:
    set_up(checkout, torch="cpu")
    set_up(checkout, "one-rank", torch="cuda")
    assert installed(checkout) == "2.13.0+cu130, no Horovod"
    assert not (checkout / ".venv/tasks/.horovod").exists(), "or make run would not install it"
    set_up(checkout)
    assert installed(checkout) == CUDA


def test_a_wheel_compiled_while_torch_is_exchanged_is_not_kept(checkout: Path) -> None:
    script = checkout / "scripts" / "horovod_wheel.sh"
    code = script.read_text()
    script.write_text(f"{code}SPARK_BERT_TORCH=cuda scripts/torch.sh\n")
    done = set_up(checkout, torch="cpu")
    assert done.returncode == 1 and "Horovod was compiled while torch was exchanged: run it again" in done.stderr
    assert not list((checkout / "cache" / "wheels").iterdir())
