"""MLflow's login: out of the deployment's secret files into the variables by which MLflow finds it."""

from __future__ import annotations

import os
from pathlib import Path

from include.secrets import LOGIN, PROMOTER, VARIABLE
from include.stages import BadInput


def log_in(promoter: bool = False) -> None:
    """Set MLflow's variables in this process as the files say; where there are none, they stay what they are.

    A promoter takes its own login, where the deployment has one. Raises BadInput for half a login, and for a file that
    cannot be read.
    """
    found = (_read(PROMOTER) if promoter else {}) or _read(LOGIN)
    for variable in LOGIN if found else ():
        os.environ.pop(variable, None)  # a token and a password of two logins do not mix
    os.environ.update(found)


def _read(files: dict[str, str]) -> dict[str, str]:
    """Variable to value, of the files that are there."""
    folder = Path(os.environ.get(VARIABLE, ""))
    there = {variable: folder / name for variable, name in files.items() if folder.name and (folder / name).is_file()}
    _, username, password = files
    for one, other in ((username, password), (password, username)):
        if one in there and other not in there:
            raise BadInput(f"{there[one]} is half a login: put {files[other]} beside it")
    try:
        return {variable: file.read_text(encoding="utf-8").strip() for variable, file in there.items()}
    except OSError as error:
        raise BadInput(f"cannot read {error.filename}: let the user that stages run as read it") from error
    except UnicodeDecodeError as error:
        named = ", ".join(map(str, there.values()))
        raise BadInput(f"{named} is not text: write the login into it") from error
