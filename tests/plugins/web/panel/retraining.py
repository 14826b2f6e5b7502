"""Runs of the Dags `retrain` and `rollback`, with the results that their stages leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from include.artifacts import write_json
from tests.plugins.web.panel.runs import make_stages

MODEL = "spark-bert-movie-reviews"


def retrain(
    home: Path,
    run_id: str,
    at: float,
    version: str = "",
    champion: str = "",
    accuracy: float = 0.8,
    outcome: str = "not worse",
    promotion: dict[str, Any] | None = None,
    model: str = MODEL,
) -> str:
    """Let a run of the Dag retrain challenge the champion, and return the name of its folder.

    Args:
        home: the home.
        run_id: the run.
        at: when it looked for the champion, in seconds since 1970. Each further stage ends 10 seconds later.
        version: the version that it registers; "" if it is refused.
        champion: the version that is the champion; "" for none.
        accuracy: the new model's; the champion's is 0.75.
        outcome: of the challenge.
        promotion: what the result of promote has besides the names of the model and of its version, which runs if there
            is any.
        model: the name of the registered model.
    """
    found: dict[str, dict[str, Any]] = {"champion": _champion(model, champion)}
    found["challenge"] = _challenge(champion, accuracy, outcome)
    if version:
        found["register"] = {"model": model, "version": version, "mlflow_run": "5f", "train": "1"}
    if promotion:
        found["promote"] = {"model": model, "version": version, "replaces": "", **promotion}
    refusal = "the new model is refused" if outcome == "worse" else ""
    return make_stages(home, "retrain", run_id, at, found, {"challenge.html": ""}, refusal)


def roll_back(home: Path, run_id: str, at: float, version: str, left: str) -> str:
    """Let a run of the Dag rollback make a version the champion again, and return the name of its folder."""
    back = {"model": MODEL, "version": version, "left": left}
    return make_stages(home, "rollback", run_id, at, {"rollback": back})


def promoted(version: str, by: str = "comparison", replaces: str = "") -> dict[str, Any]:
    """Return what promote says of a version that it has promoted."""
    return {"promoted": True, "champion": version, "replaces": replaces, "decision": "approved", "by": by,
            "reason": f"version {version} is the champion: approved by {by}"}  # fmt: skip


def kept(champion: str) -> dict[str, Any]:
    """Return what promote says of a version that it has not promoted."""
    return {"promoted": False, "champion": champion, "decision": "rejected", "by": "ann", "reason": "rejected by ann"}


def answer(home: Path, run: str, decision: str, by: str, at: str) -> None:
    """Let a person have answered the request of a run."""
    answer = {"decision": decision, "by": by, "at": at, "timed_out": False}
    write_json(home / "runs" / run / "decision.json", answer)


def try_out(home: Path, run: str, version: str, champion: str) -> None:
    """Let the service have tried out the version of a run."""
    texts = {"texts": 1000, "same": 970, "skipped": 0, "milliseconds": {"champion": 6.3, "challenger": None}}
    figures = {"service": "http://serve:8000", "champion": champion, "version": version, **texts}
    write_json(home / "runs" / run / "trial.json", figures)


def _champion(model: str, version: str) -> dict[str, Any]:
    keys = dict.fromkeys(("evaluate", "package", "package_sha256", "run", "sha256", "train", "folder"), "")
    return {**keys, "model": model, "version": version, "files": {"champion": "champion.json"}}


def _challenge(champion: str, accuracy: float, outcome: str) -> dict[str, Any]:
    against = {"compared": "accuracy", "difference": accuracy - 0.75, "interval": [-0.01, 0.11], "p": 0.2}
    return {
        "outcome": outcome,
        "passed": outcome != "worse",
        **(against if champion else dict.fromkeys(against)),
        "margin": 0.02 if champion else None,
        "rows": 320,
        "champion": champion,
        "metric": "accuracy",
        "metrics": {"model": accuracy, "champion": 0.75 if champion else None},
        "reasons": ["accuracy is below the champion's"] if outcome == "worse" else [],
        "files": {"challenge": "challenge.html"},
    }
