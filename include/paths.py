"""Checks of paths that users write."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from include.stages import BadInput


def user_path(text: str) -> Path:
    """Expand ~ and ~name in a path, as the shell does.

    Raises:
        BadInput: if there is no user of that name.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{text}: there is no user of that name here: write the absolute path") from error


def user_folder(text: str) -> Path:
    """Return the absolute path of a folder that a user names, also by one of its files, such as a package.json.

    Raises:
        BadInput: if there is no user of the name behind ~.
    """
    path = user_path(text).absolute()
    return path.parent if path.is_file() else path


def check_file(path: Path, remedy: str) -> None:
    """Check that a path is a regular file without opening it, because opening a pipe would block.

    Args:
        path: the path to check.
        remedy: what the user should do instead; the end of the message.

    Raises:
        BadInput: if there is no file, or it is not a regular file.
    """
    if path.is_file():
        return
    if path.is_dir():
        raise BadInput(f"{path} is a folder, not a file: {remedy}")
    if path.exists():
        raise BadInput(f"{path} is a pipe, a socket or a device, not a file: {remedy}")
    raise BadInput(f"{path} is missing: {remedy}")


def check_home(home: Path) -> None:
    """Check that a home is where it was made, which scripts/home.sh writes into it.

    Records, MLflow's database and Airflow's configuration name its path, so that whoever works in a copy would write
    into the first one.

    Raises:
        BadInput: if it was copied or moved.
    """
    made = Path()
    with suppress(OSError):
        made = Path((home / ".path").read_text(encoding="utf-8"))
        if made.samefile(home):
            return
    if made != Path():
        raise BadInput(
            f"{home} was made as {made} and then copied or moved: its records, MLflow's database and airflow.cfg name "
            "that path, and runs would write there. Name another SPARK_BERT_HOME, move the folder back, or, if "
            f"{made} is gone, write ln -s {home.resolve()} {made}"
        )
