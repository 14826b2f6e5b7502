"""Where the driver and the executors of Spark exchange files: in place, or in an object store.

By default executors see the driver's files under the same paths. On a cluster without a common folder,
$SPARK_BERT_STAGING names one in a store that all of them reach, such as s3://bucket/prefix: the driver shares files
through it, and collects what the executors have written. A file has an address there, which is a path or a URL.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pyarrow import fs

from include.artifacts import in_turn, sync
from include.scratch import scratch_folder
from include.stages import BadInput, Transient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: The variable that names the folder of the store.
STAGING = "SPARK_BERT_STAGING"
#: How many files the driver brings at the same time.
_AT_ONCE = 8


@dataclass(frozen=True)
class Staging:
    """A folder for the files of one session.

    Attributes:
        url: of the folder in the store; "" if the executors have the driver's files under the same paths.
    """

    url: str = ""

    def share(self, path: Path, only: Collection[Path] = ()) -> str:
        """Return the address under which executors read a file, or a folder or only these files in it, as it is now."""
        address = self.address_of(path)
        if self.url:
            for source in only or [path]:
                target = below(address, str(source.relative_to(path))) if source != path else address
                transfer(str(source.absolute()), target)
        return address

    def address_of(self, path: Path) -> str:
        """Return the address of a file or a folder that executors write, and `collect` brings to its place."""
        if not self.url:
            return str(path.absolute())
        place = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
        return below(self.url, f"{place}/{path.name}")

    def collect(self, folder: Path, ended: bool = True) -> None:
        """Bring what the executors have written to a folder, where each file appears whole, and is brought once.

        If they have ended, remove what abandoned attempts have left there.
        """
        folder.mkdir(exist_ok=True)
        if self.url:
            address = self.address_of(folder)
            whole = [name for name, size in sizes(address).items() if ended or size]  # Azure first shows an empty one
            new = [name for name in whole if not (folder / name).exists()]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(lambda name: _bring(below(address, name), folder / name), new))
        for leftover in folder.glob(".*.attempt-*") if ended else ():
            leftover.unlink()


@contextmanager
def staging(spark: SparkSession) -> Iterator[Staging]:
    """Open the staging folder of a session, and remove it on exit."""
    store = os.environ.get(STAGING, "")
    if not store or is_local(spark):
        yield Staging()
        return
    url = below(store, f"spark-bert-{secrets.token_hex(8)}")
    _place(url)  # what is wrong with it is reported before there is work
    try:
        yield Staging(url)
    finally:
        try:
            remove(url)
        except Transient as error:  # no reason to do the work again
            log.warning("the files of this session remain in the store: %s", error)


def is_local(spark: SparkSession) -> bool:
    """Return whether the executors are threads on this machine, so that they can read its files in place."""
    return str(spark.sparkContext.master).startswith("local")


def below(address: str, name: str) -> str:
    """Return the address of what has this name in the folder with an address."""
    if "://" not in address:
        return str(Path(address, name))
    parts = urlsplit(address)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{quote(name)}").geturl()


def opened(address: str) -> Any:
    """Open a file for random access, as pyarrow.NativeFile: only what is read is transferred."""
    files, path = _place(address)
    with _reached(address):
        return files.open_input_file(path)


def fetched(address: str, folder: Path | None = None) -> Path:
    """Return the path of a shared file or folder on this machine, to which it is copied once for all its workers.

    The copy lies in a folder of the executor's, which a process that is no worker of Spark has to name.
    """
    if "://" not in address:
        return Path(address)
    path = _place(address)[1]
    if folder is None:
        from pyspark import SparkFiles  # which a stage without executors does not import

        folder = Path(SparkFiles.getRootDirectory())
    cache = Path(folder, f"fetched-{hashlib.sha256(path.encode()).hexdigest()[:16]}")
    with in_turn(cache.with_suffix(".lock")):
        target = cache / Path(path).name
        if not target.exists():
            with scratch_folder(cache.parent, cache.name) as scratch:
                transfer(address, str(scratch / target.name))
                cache.mkdir(exist_ok=True)
                (scratch / target.name).rename(target)
    return target


@contextmanager
def whole_file(address: str) -> Iterator[Path]:
    """Yield where an attempt to work on a piece writes a file, which gets its address if the block does not fail."""
    if "://" not in address:
        file = Path(address)
        # Each attempt, such as a speculative one, writes its own file, so that only complete files are renamed.
        attempt = file.with_name(f".{file.name}.attempt-{secrets.token_hex(4)}")
        yield attempt
        sync(attempt)
        attempt.replace(file)
        return
    with tempfile.TemporaryDirectory(prefix="spark-bert-") as folder:
        attempt = Path(folder, "attempt")
        yield attempt
        transfer(str(attempt), address)  # an object store shows only whole objects


def sizes(address: str) -> dict[str, int]:
    """Return the size of each file in a folder and below, by its path there. Without the folder, there are none."""
    files, path = _place(address)
    with _reached(address):
        found = files.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
    return {os.path.relpath(info.path, path): info.size for info in found if info.is_file}


def remove(address: str) -> None:
    """Remove a folder, if it is there."""
    files, path = _place(address)
    with _reached(address):
        if files.get_file_info(path).type != fs.FileType.NotFound:
            files.delete_dir(path)


def transfer(source: str, target: str) -> None:
    """Copy a file, or a folder with all that is below it, from one address to another."""
    (reader, start), (writer, end) = _place(source), _place(target)
    with _reached(source if "://" in source else target):
        if "://" not in target:
            is_folder = reader.get_file_info(start).type == fs.FileType.Directory
            (Path(end) if is_folder else Path(end).parent).mkdir(parents=True, exist_ok=True)
        fs.copy_files(start, end, source_filesystem=reader, destination_filesystem=writer, use_threads=True)


@contextmanager
def repeating(work: Callable[[], None], seconds: float) -> Iterator[None]:
    """Do the work in a thread every few seconds until the block ends. What fails is tried again."""
    ended = Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            try:
                work()
            except (OSError, Transient) as error:
                log.warning("%s; this is tried again", error)

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _bring(address: str, file: Path) -> None:
    attempt = file.with_name(f".{file.name}.attempt-collected")
    transfer(address, str(attempt))
    sync(attempt)
    attempt.replace(file)


@contextmanager
def _reached(address: str) -> Iterator[None]:
    """Name the machine and the store if the store cannot be used."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        if "://" not in address or isinstance(error, FileNotFoundError) or getattr(error, "errno", 0) == errno.ENOSPC:
            raise
        raise Transient(
            f"{socket.gethostname()} cannot use {_shown(address)} ({error}): let the machines of the Spark cluster "
            "connect to the store, and give them a login to it"
        ) from error


def _shown(address: str) -> str:
    """Return an address without the login and the options that it may contain."""
    parts = urlsplit(address)
    place = parts.netloc if parts.password is None else parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path}"


def _place(address: str) -> tuple[fs.FileSystem, str]:
    if "://" not in address:
        return fs.LocalFileSystem(), address
    try:
        files, path = fs.FileSystem.from_uri(address)
    except (pa.ArrowException, OSError, ValueError) as error:
        shown = _shown(address)
        reason = str(error).replace(address, shown)
        raise BadInput(
            f"{STAGING} {shown} cannot be opened ({reason}): correct it, or the login to the store"
        ) from error
    return files, path
