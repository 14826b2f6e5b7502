"""The artifact store: the folders artifacts/<stage>/<key>, each of which is complete or does not exist.

A stage writes into a temporary sibling, the manifest last, and one rename commits it. A folder without a manifest (a
copy or a removal was cut off) is no artifact, and is replaced. A stage that was stopped continues from
checkpoints/<stage>/<key>, which is removed when its artifact is committed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from include.scratch import scratch_folder
from include.stages import BadInput, Transient

log = logging.getLogger(__name__)

MANIFEST, LOCK = "manifest.json", "lock"
Files = dict[str, tuple[int, str]]  # bytes and sha256 of each file, by relative path


@dataclass(frozen=True)
class Manifest:
    """The content of an artifact's manifest.json."""

    stage: str
    key: str
    version: int
    part: dict[str, Any]  # of the experiment
    inputs: dict[str, str]  # the keys of the artifacts that it was made from, by stage
    fingerprint: str  # of what it was made from outside the store (raw files, pretrained weights)
    revision: str
    result: dict[str, Any] = field(default_factory=dict)
    exit_code: int = 0  # evidence of a failure is committed, but is no input
    message: str = ""
    files: Files = field(default_factory=dict)
    modified: dict[str, int] = field(default_factory=dict)  # when each file was changed last, in ns since 1970


@dataclass(frozen=True)
class Artifact:
    """A committed artifact."""

    path: Path
    manifest: Manifest


class ArtifactStore:
    """The folder artifacts/ of a home.

    With full_check, `find` hashes every file, even if size and time of its last change are those of the commit.
    """

    def __init__(self, root: Path, full_check: bool = False) -> None:
        self.root = root / "artifacts"
        self.full_check = full_check

    def path(self, stage: str, key: str) -> Path:
        """Return the folder of an artifact, which need not exist."""
        return self.root / stage / key

    def find(self, stage: str, key: str, hashed: bool = False) -> Artifact | None:
        """Return the artifact, or None if it was never committed. Raise BadInput if it is damaged."""
        path = self.path(stage, key)
        if not (path / MANIFEST).is_file():
            return None
        manifest = read_manifest(path)
        file = damaged(path, manifest.files, {} if hashed or self.full_check else manifest.modified)
        if file is not None:
            raise BadInput(f"{file} is missing or damaged: remove {path} and run {stage} again")
        file = _unlisted(path, manifest.files)
        if file is not None:
            raise BadInput(
                f"{file} is not listed in {MANIFEST}: remove it if you have put it there, otherwise remove {path} and "
                f"run {stage} again"
            )
        return Artifact(path, manifest)

    def checkpoints(self, stage: str, key: str) -> Path:
        """Return the folder in which a stage keeps what it needs to continue after it was stopped."""
        return self.root.parent / "checkpoints" / stage / key

    def discard_checkpoints(self, stage: str, key: str) -> None:
        """Remove the checkpoints, unless another process is at work there, which will remove them itself."""
        folder = self.checkpoints(stage, key)
        if folder.exists():
            with suppress(Transient), locked(folder):
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def writing(self, stage: str, key: str) -> Iterator[Path]:
        """Make a temporary folder for the stage's files, which is removed in the end unless it was committed."""
        (self.root / stage).mkdir(parents=True, exist_ok=True)
        _remove_remains(self.path(stage, key))
        with scratch_folder(self.root / stage, f".{key}") as folder:
            folder.chmod(0o755)
            yield folder

    def commit(self, folder: Path, manifest: Manifest) -> Artifact:
        """Write the manifest and rename the folder into place. If another writer was first, return its artifact."""
        # Before hashing, so that a change meanwhile does not go unnoticed.
        modified = {file.relative_to(folder).as_posix(): file.stat().st_mtime_ns for file in _files(folder)}
        sealed = replace(manifest, files=inventory(folder), modified=modified)
        write_json(folder / MANIFEST, asdict(sealed))
        target = self.path(manifest.stage, manifest.key)
        try:
            folder.rename(target)
        except OSError:
            winner = self.find(manifest.stage, manifest.key)
            if winner is not None:
                return winner
            _remove_remains(target)
            folder.rename(target)
        sync(target.parent)
        return Artifact(target, sealed)


def artifact_key(version: int, part: dict[str, Any], inputs: dict[str, str], fingerprint: str) -> str:
    """Return 16 hexadecimal digits that are equal if a stage would make the same thing."""
    whole = json.dumps([version, part, inputs, fingerprint], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def revision() -> str:
    """Return the code's git revision: $SPARK_BERT_REVISION (set in images), or else what git says, or "unknown"."""
    if named := os.environ.get("SPARK_BERT_REVISION"):
        return named
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def sha256(file: Path) -> str:
    """Return the sha256 of a file in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def inventory(folder: Path) -> Files:
    """Return size and sha256 of every file below the folder, after all are synced to the disk."""
    files = {}
    for file in _files(folder):
        files[file.relative_to(folder).as_posix()] = (file.stat().st_size, sha256(file))
        sync(file)
    return files


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def damaged(folder: Path, files: Files, modified: Mapping[str, int] | None = None) -> Path | None:
    """Return the first file that is missing or differs from its inventory, or None.

    A file that was last changed at the time that `modified` gives for it is not hashed.
    """
    known = modified or {}
    for name, (size, digest) in files.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != size:
            return file
        if file.stat().st_mtime_ns != known.get(name) and sha256(file) != digest:
            return file
    return None


def _unlisted(folder: Path, files: Files) -> Path | None:
    """Return the first file that the manifest does not list, except for compiled Python of a listed file."""
    known = {folder / name for name in (MANIFEST, *files)}
    for path in _files(folder):
        is_compiled = path.parent.name == "__pycache__" and ".pyc" in path.name  # or .pyc.123 for a moment
        source = path.parent.parent / f"{path.name.split('.')[0]}.py" if is_compiled else path
        if not {path, source} & known:
            return path
    return None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and lock it for this process. Raise Transient, naming the process that has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise Transient(f"{folder} is in use by {file.read()}: wait until it has ended, or stop it") from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


@contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """Lock a file for this process, after waiting until no other one has it."""
    with file.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        temporary.write_text(text, encoding="utf-8")
        sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in an artifact's folder. Raise BadInput if it is damaged."""
    try:
        return Manifest(**json.loads((path / MANIFEST).read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path / MANIFEST} is damaged: remove {path} and run its stage again") from error


def _remove_remains(path: Path) -> None:
    """Remove a folder that has no manifest from an artifact's place.

    It is emptied through a descriptor, so that nothing is lost if another writer's artifact takes its place meanwhile.
    """
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        with os.scandir(folder) as found:
            entries = list(found)
        if any(entry.name == MANIFEST for entry in entries):
            return
        log.warning("%s has no %s, so it is not a complete artifact: it is removed and made again", path, MANIFEST)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.name, dir_fd=folder)
            else:
                os.unlink(entry.name, dir_fd=folder)
        with suppress(OSError):  # another writer was faster
            path.rmdir()
    except OSError as error:
        raise BadInput(f"{path} has no {MANIFEST} and cannot be removed ({error}): remove it by hand") from error
    finally:
        os.close(folder)


def sync(path: Path) -> None:
    """Sync a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
