"""MLflow's login: read from the deployment's secret files and passed to MLflow in environment variables."""

from __future__ import annotations

import os
from pathlib import Path

from include.secrets import LOGIN, PROMOTER, VARIABLE
from include.stages import BadInput


def log_in(promoter: bool = False) -> None:
    """Set MLflow's environment variables from the secret files. Without such files, the variables stay unchanged.

    Args:
        promoter: Whether to use the promoter's login, if the deployment has one.

    Raises:
        BadInput: If only one of username and password is given, or if a file cannot be read.
    """
    found = (_read(PROMOTER) if promoter else {}) or _read(LOGIN)
    for variable in LOGIN if found else ():
        os.environ.pop(variable, None)  # otherwise a token of one login could be combined with a password of another
    os.environ.update(found)


def _read(files: dict[str, str]) -> dict[str, str]:
    """Return variable name to value for the files that exist."""
    folder = Path(os.environ.get(VARIABLE, ""))
    there = {variable: folder / name for variable, name in files.items() if folder.name and (folder / name).is_file()}
    _, username, password = files
    for one, other in ((username, password), (password, username)):
        if one in there and other not in there:
            raise BadInput(f"{there[one]} is only half of a login: add the file {files[other]} to its folder")
    try:
        return {variable: file.read_text(encoding="utf-8").strip() for variable, file in there.items()}
    except OSError as error:
        raise BadInput(f"{error.filename} cannot be read: give the user that runs the stages read access") from error
    except UnicodeDecodeError as error:
        named = ", ".join(map(str, there.values()))
        raise BadInput(f"{named} is not UTF-8 text: write the login into it") from error
