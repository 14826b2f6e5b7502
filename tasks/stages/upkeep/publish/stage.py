"""The stage publish: write the model card, README.md, and upload it with the model to the Hugging Face hub.

The runner accepts no artifact of a failed gate, so only a model that has passed can be published.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from include.experiment import Experiment
from include.fields.results import Publication
from include.runs import Run
from include.stages import BadInput, Transient
from tasks.context import Context, Outcome

CARD = "README.md"
_UNAUTHORIZED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)

log = logging.getLogger(__name__)


def plan(experiment: Experiment, run: Run) -> str:
    """Return the time if there is something to upload, because the repository may have changed since then."""
    return datetime.now(UTC).isoformat() if experiment.publication.repository else ""


def run(context: Context, plan: str) -> Outcome:
    """Write the card and, if the experiment names a repository, upload it with the model."""
    from tasks.encoder.base_model import base_model, recorded
    from tasks.stages.upkeep.publish.card import evidence_of, model_card

    experiment, model = context.experiment, context.inputs["train"].path / "model"
    if experiment.model.kind != "encoder":
        raise BadInput(
            f"model.kind {experiment.model.kind} is a baseline, and only fine-tuned encoders are published: write "
            "model.kind: encoder"
        )
    publication, card = experiment.publication, context.output / CARD
    base = recorded(model) or base_model(experiment.model.name, experiment.runtime)
    name = publication.repository or "path/to/the/model"
    card.write_text(model_card(experiment, evidence_of(context.inputs), base, name), encoding="utf-8")
    result = {"repository": publication.repository, "files": {"card": CARD}}
    if not publication.repository:
        log.info("publication.repository is empty, so nothing was uploaded")
        return Outcome(result)
    address = upload(publication, model, card, f"The model of the run {context.run.folder.name}")
    log.info("published %s", address)
    return Outcome({**result, "url": address})


def upload(publication: Publication, model: Path, card: Path, message: str) -> str:
    """Upload a model's folder and its card in one commit, and return the address of the commit."""
    from httpx2 import HTTPError
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled

    files = {str(file.relative_to(model)): file for file in sorted(model.rglob("*")) if file.is_file()} | {CARD: card}
    changes = [CommitOperationAdd(name, file) for name, file in files.items()]
    hub, repository = HfApi(), publication.repository
    try:
        hub.create_repo(repository, private=publication.private, exist_ok=True)
        return str(hub.create_commit(repository, changes, commit_message=message).commit_url)
    except LocalTokenNotFoundError as error:
        raise BadInput(f"{_NO_TOKEN} ({error})") from error
    except HFValidationError as error:
        raise BadInput(f"publication.repository {repository!r} is not a name on the hub: {error}") from error
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else HTTPStatus.SERVICE_UNAVAILABLE
        if status in _UNAUTHORIZED:
            raise BadInput(f"the hub refuses to write to {repository}: {_first_line(error)}. {_NO_TOKEN}") from error
        if status in _REFUSED:
            remedy = "correct publication.repository, or create the organization on the hub"
            raise BadInput(f"the hub does not accept {repository}: {_first_line(error)}. Remedy: {remedy}") from error
        raise Transient(f"the hub did not take the model: {_first_line(error)}") from error
    except (HTTPError, OfflineModeIsEnabled, OSError) as error:
        raise Transient(f"the hub cannot be reached: {error}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


_NO_TOKEN = (
    "Publishing needs a token that may write to the repository: set HF_TOKEN, or write the token to the file that "
    "HF_TOKEN_PATH names"
)
