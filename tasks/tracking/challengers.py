"""Set and remove the alias challenger. The alias champion is never touched here: see champions.py."""

from __future__ import annotations

import logging

from include.stages import Transient
from tasks.tracking.registry import CHALLENGER, Registry, Version

log = logging.getLogger(__name__)


def set_challenger(registry: Registry, version: Version) -> None:
    """Let the service try out a version. If MLflow refuses, a warning says so, because only the trial is lost."""
    try:
        with registry.translate_errors():
            registry.client.set_registered_model_alias(registry.model, CHALLENGER, version.number)
    except Transient as error:
        log.warning("%s is not tried out: %s", version, error)


def remove_challenger(registry: Registry, version: Version) -> None:
    """Let the service try out a version no more. If MLflow refuses, a warning says so."""
    try:
        if registry.aliases().get(CHALLENGER) == version.number:
            with registry.translate_errors():
                registry.client.delete_registered_model_alias(registry.model, CHALLENGER)
    except Transient as error:
        log.warning("%s is still the challenger: %s", version, error)
