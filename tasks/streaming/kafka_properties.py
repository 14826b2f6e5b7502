"""How the deployment reaches its Kafka: librdkafka's properties for TLS and the login, from a secret file.

The file has lines as `sasl.username=reader`; empty lines and those that start with # are left out. Which properties
there are says librdkafka's CONFIGURATION.md. The driver reads the file, and so does every executor.
"""

from __future__ import annotations

import os
from pathlib import Path

from include.folders import check_file
from include.secrets import KAFKA, KAFKA_VARIABLE, VARIABLE
from include.stages import BadInput


def properties_file() -> Path | None:
    """Return `kafka.properties` of the secret files, else the file that the variable names, or None.

    Raises:
        BadInput: If the variable names no file.
    """
    folder, named = os.environ.get(VARIABLE), os.environ.get(KAFKA_VARIABLE)
    if folder and Path(folder, KAFKA).is_file():
        return Path(folder, KAFKA)
    if not named:
        return None
    check_file(Path(named), f"correct {KAFKA_VARIABLE}, or unset it if the brokers want neither TLS nor a login")
    return Path(named)


def read_properties(file: Path) -> dict[str, str]:
    """Read a file of properties.

    Raises:
        BadInput: If the file cannot be read, or a line is no property. The message does not show the line, which may
            hold a password.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadInput(f"{file} cannot be read: give the user that runs the stages read access") from error
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text: write lines as KEY=VALUE into it") from None
    found = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise BadInput(
                f"{file}, line {number} is not KEY=VALUE: write a property of librdkafka, or remove the line"
            )
        found[key.strip()] = value.strip()
    return found
