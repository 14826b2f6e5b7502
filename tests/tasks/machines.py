"""Machines with a network and folders of their own, as far as one machine can be several.

Each runs in namespaces of users, mounts, processes, and networks, with an address of its own. It has what an image has:
the system, the packages of Python, and Java. All other folders, such as the checkout, /tmp, and the home, are empty and
its own. A driver has the files of this machine, and an address in the same network. Nothing of it reaches the network
of the machine, and all of it ends with the tests, even if they are killed.

Where a machine permits no namespaces, the same commands run on its loopback interface, with a home and a temporary
folder of their own. They would then find the files of a driver, so a warning says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
ADDRESSES = {
    "driver": "10.231.0.1", "store": "10.231.0.2", "master": "10.231.0.3", "one": "10.231.0.4", "two": "10.231.0.5",
}  # fmt: skip
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc", "/dev")

#: Connects the driver's interface eth0 and one of each other machine, and lasts until its stdin is closed.
_CABLE = """
set -e
mount -t tmpfs tmpfs /run
mkdir /run/netns
ip link set lo up
ip link add eth0 type bridge
ip address add $1/24 dev eth0
ip link set eth0 up
shift
while [ $# -gt 0 ]; do
  ip netns add $1
  ip link add to-$1 type veth peer name eth0 netns $1
  ip link set to-$1 master eth0 up
  ip -n $1 address add $2/24 dev eth0
  ip -n $1 link set eth0 up
  ip -n $1 link set lo up
  shift 2
done
echo ready
exec cat
"""
#: Runs a command under the name of its machine, where only these paths of this one exist, and else empty folders.
_ROOT = """
set -e
hostname $1; hosts=$2; root=$3; shift 3
mount -t tmpfs tmpfs "$root"
mkdir -p "$root/proc" "$root/tmp" "$root$HOME"
while [ "$1" != -- ]; do
  mkdir -p "$root$(dirname "$1")"
  if [ -L "$1" ]; then cp -P "$1" "$root$1"; else mkdir -p "$root$1"; mount --rbind "$1" "$root$1"; fi
  shift
done
shift
mount --bind "$hosts" "$root/etc/hosts"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev/shm"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class Machines:
    """The machines of ADDRESSES.

    Attributes:
        folder: where each machine has its log, and its files if it is a process. All machines have its folder "image".
        init: the process that holds the network; None if the machines are processes.
    """

    folder: Path
    init: int | None

    def address(self, name: str) -> str:
        """Return the IP address of a machine."""
        return ADDRESSES[name] if self.init else "127.0.0.1"

    def log(self, name: str) -> str:
        """Return what a machine has logged."""
        return Path(self.folder, name, "log").read_text(errors="replace")

    def run(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a machine that runs a command, with these variables and no others of ours."""
        files = Path(self.folder, name, "files")
        (files / "tmp").mkdir(parents=True)
        home, temporary = ("/home", "/tmp") if self.init else (str(files), str(files / "tmp"))
        ours = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": home, "TMPDIR": temporary}
        if self.init:
            hosts = files.with_name("hosts")
            hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{to} {host}\n" for host, to in ADDRESSES.items()))
            alone = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "sh", "-c", _ROOT, "sh", name]
            inside = self._inside(f"--net=/proc/{self.init}/root/run/netns/{name}", "--pid")
            command = [*inside, *alone, str(hosts), str(files), *self._image(), "--", *command]
        with Path(self.folder, name, "log").open("wb") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            return subprocess.Popen(command, env={**ours, **environment}, cwd=files, **options)  # type: ignore[call-overload, no-any-return]

    def drive(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a driver: with the files and the variables of this process, and pipes for stdout and stderr."""
        command = [*(self._inside("--net") if self.init else []), *command]
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def _inside(self, *namespaces: str) -> list[str]:
        return ["nsenter", "--target", str(self.init), "--user", "--preserve-credentials", *namespaces, "--"]

    def _image(self) -> list[str]:
        """Return what machines have of this one."""
        java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin") or shutil.which("java") or ""
        paths = [*_SYSTEM, sys.prefix, sys.base_prefix, str(Path(java).resolve().parent.parent), f"{self.folder}/image"]
        return [path for path in dict.fromkeys(paths) if os.path.lexists(path)]


@contextmanager
def machines(folder: Path, separate: bool = True) -> Iterator[Machines]:
    """Connect the machines; `separate=False` is what is done where namespaces are not permitted."""
    (folder / "image").mkdir()
    with ExitStack() as stack:
        connected = Machines(folder, _connect(stack) if separate else None)
        if connected.init and connected.run("store", ["true"], {}).wait():
            connected = Machines(folder, None)
        shutil.rmtree(folder / "store", ignore_errors=True)
        if separate and not connected.init:
            warnings.warn("namespaces are not permitted: executors could read the driver's files", stacklevel=2)
        yield connected


def _connect(stack: ExitStack) -> int | None:
    """Start the process that holds the network, and return its id, or None where that is not permitted."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "hostname"))):
        return None
    spaces = ["--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    others = [word for name, address in ADDRESSES.items() if name != "driver" for word in (name, address)]
    command = ["unshare", *spaces, "sh", "-c", _CABLE, "sh", ADDRESSES["driver"], *others]
    process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    assert process.stdin is not None and process.stdout is not None
    stack.callback(process.stdin.close)
    if process.stdout.readline() != b"ready\n":
        return None
    return int(psutil.Process(process.pid).children()[0].pid)
