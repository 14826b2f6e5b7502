"""The form of a package that computes on this machine, the fastest for a use or the one that is named; its guard."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from include.fields.results import FormName
from include.stages import BadInput
from tasks.inference.packaged_backends import Form, Use, fastest, file_of, obstacle, times_torch
from tasks.inference.packaged_model import DESCRIPTION
from tasks.scoring.risk import EVIDENCE, Guard

log = logging.getLogger(__name__)


def choose(folder: Path, use: Use, wanted: FormName = "auto") -> Form:
    """Return a form that a package offers and this machine computes, and log why it is this one.

    The speeds are those of the machine that has made the package. Raise BadInput if there is no such form.
    """
    file = folder / DESCRIPTION
    try:
        said = json.loads(file.read_bytes())
        forms: dict[str, Form] = {form["name"]: form for form in said["forms"]}
        obstacles = {name: _obstacle(form) for name, form in forms.items()}
        found = [forms[name] for name, why in obstacles.items() if not why]
        if wanted in ("auto", *(form["name"] for form in found)) and found:
            form = fastest(found, use) if wanted == "auto" else forms[wanted]
            file_of(folder, form)
            log.info("%s computes: %s", form["name"], _why(form, use, wanted, said))
            return form
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} is damaged, or of an earlier version ({error!r}): package the model again") from error
    if wanted == "auto":
        reasons = "; ".join(f"{name}: {why}" for name, why in obstacles.items())
        raise BadInput(
            f"{folder} has no form for this machine ({reasons}): package the model on a machine like this one, or "
            "install what is missing"
        )
    why = obstacles.get(wanted, "the package has no such form")
    choice = " or ".join(["auto", *(form["name"] for form in found)])
    raise BadInput(
        f"{use}.form {wanted} of {folder} cannot be used, because {why}: write {choice}. The limits of what is "
        "offered are fields of the section packaging"
    )


def guard_of(package: Path, form: str, max_risk: float | None) -> Guard | None:
    """Return what a form of a package may answer with prediction.max_risk; None without it.

    Raise BadInput if the package does not say what dev said of the form.
    """
    if max_risk is None:
        return None
    try:
        return Guard.read(package, form, max_risk)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"prediction.max_risk needs {package / EVIDENCE} with the form {form} ({error!r:.200}): package the model "
            "again and, if it is registered, register and promote it again, or remove prediction.max_risk"
        ) from error


def log_guard(guard: Guard | None, name: str) -> None:
    """Log what a model may answer, or warn that its dev rows do not suffice."""
    if guard is not None:
        log.log(logging.INFO if guard.is_certified else logging.WARNING, "%s: %s", name, guard.says())


def _obstacle(form: Form) -> str:
    return obstacle(form) if form["offered"] else f"it is not offered ({'; '.join(form['reasons'])})"


def _why(form: Form, use: Use, wanted: FormName, said: Form) -> str:
    if wanted != "auto":
        return f"{use}.form names it"
    where = said.get("machine", {}).get("processor", "an unknown processor")
    return f"the fastest for {use}, {times_torch(form, use):.2f} times PyTorch where it was packaged ({where})"
