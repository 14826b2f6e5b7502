"""Network namespaces joined by links of a stated speed, as hosts on a switch would be. Needs root and iproute2."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

INTERFACE = "link0"  # of every host
PREFIX = "benchmark"  # of the namespaces' names, before the number of the process that made them
BURST = 128 * 1024  # bytes that leave at once after a pause, on links of up to a Gbit/s
_NEW_NETWORK, _NEW_MOUNTS = 0x40000000, 0x00020000  # of <sched.h>; the module os has them from Python 3.12 on
#: `ip netns exec` puts <name>/hosts from here into the place of /etc/hosts. The contexts of Horovod's process sets
#: look up their own host's name, whatever HOROVOD_GLOO_IFACE says, and would find the machine's loopback.
FILES = Path("/etc/netns")


@dataclass(frozen=True)
class Host:
    """Where a rank runs.

    Attributes:
        name: as Horovod is told it.
        address: of the interface.
        interface: that the ranks send through.
        command: what goes before a command that runs there.
    """

    name: str = "localhost"
    address: str = "127.0.0.1"
    interface: str = "lo"
    command: tuple[str, ...] = ()


LOCAL = Host()


def missing() -> str:
    """Why there can be no such hosts here; empty when there can."""
    if os.geteuid():
        return "only root may make network namespaces"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "iproute2 (ip, tc) is not installed"
    try:
        with joined_hosts() as hosts:  # a container's root may lack the right, its kernel a module
            limit(INTERFACE, rate=10**9, host=hosts[0])
    except (OSError, subprocess.CalledProcessError) as error:
        return (getattr(error, "stderr", "") or str(error)).strip().removesuffix(".")
    return ""


@contextmanager
def joined_hosts(count: int = 2) -> Iterator[list[Host]]:
    """Hosts on one switch, without limits; they are gone at the end, whatever happened, also after SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _remove_leftovers()
    names = [f"{PREFIX}-{os.getpid()}-{number}" for number in range(count)]
    switch = f"{PREFIX}-{os.getpid()}-switch"
    hosts = [
        Host(name, f"10.211.0.{number}", INTERFACE, ("ip", "netns", "exec", name))
        for number, name in enumerate(names, start=1)
    ]
    try:
        _join(hosts, switch)
        yield hosts
    finally:
        for name in (*names, switch):
            _remove(name)
        with suppress(OSError):  # where others have files
            FILES.rmdir()
        signal.signal(signal.SIGTERM, before)


def enter(host: Host) -> None:
    """Let this process run on the host from now on, as `ip netns exec` lets a new one. There is no way back."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", host.name).open(encoding="ascii") as namespace:
        failed = libc.setns(namespace.fileno(), _NEW_NETWORK) or libc.unshare(_NEW_MOUNTS)
    if failed:
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {host.name}")
    _run("mount", "--make-rslave", "/")  # so that the machine keeps its own /etc/hosts
    _run("mount", "--bind", str(FILES / host.name / "hosts"), "/etc/hosts")


def limit(interface: str, rate: int | None, host: Host = LOCAL) -> None:
    """Let the host's interface send at most so many bit/s, beyond bursts of 128 KiB or a millisecond; None: any."""
    shape = ["noqueue"]
    if rate is not None:
        burst = max(BURST, rate // 8 // 1000)
        shape = ["tbf", "rate", f"{rate}bit", "burst", str(burst), "latency", "50ms"]
    _run(*host.command, "tc", "qdisc", "replace", "dev", interface, "root", *shape)


def bytes_sent(interface: str) -> int:
    """What the interface of this host has sent so far, with all headers."""
    return int(Path("/sys/class/net", interface, "statistics", "tx_bytes").read_text(encoding="ascii"))


def _join(hosts: list[Host], switch: str) -> None:
    _run("ip", "netns", "add", switch)
    _run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
    _run("ip", "-n", switch, "link", "set", "bridge", "up")
    for number, host in enumerate(hosts):
        _run("ip", "netns", "add", host.name)
        (FILES / host.name).mkdir(parents=True)
        (FILES / host.name / "hosts").write_text(f"127.0.0.1 localhost\n{host.address} {socket.gethostname()}\n")
        port = f"port{number}"
        peer = ("type", "veth", "peer", "name", port, "netns", switch)
        _run("ip", "link", "add", INTERFACE, "netns", host.name, *peer)
        _run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
        _run(*host.command, "ip", "address", "add", f"{host.address}/24", "dev", INTERFACE)
        for interface in ("lo", INTERFACE):
            _run(*host.command, "ip", "link", "set", interface, "up")


def _remove_leftovers() -> None:
    """Remove the namespaces of processes that were killed before they could."""
    for namespace in Path("/run/netns").glob(f"{PREFIX}-*"):
        process = namespace.name.split("-")[1]
        if process.isdigit() and not Path("/proc", process).exists():
            _remove(namespace.name)


def _remove(name: str) -> None:
    shutil.rmtree(FILES / name, ignore_errors=True)
    with suppress(subprocess.CalledProcessError):  # one that was never made
        _run("ip", "netns", "del", name)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
