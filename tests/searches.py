"""What search.json says of a search, for the tests of its report and of the panel."""

from __future__ import annotations

import random
from typing import Any

SPACE: dict[str, dict[str, Any]] = {
    "training.learning_rate": {"low": 1e-5, "high": 2e-4, "log": True, "step": None},
    "training.epochs": {"low": 1.0, "high": 4.0, "log": False, "step": 1.0},
    "loss.kind": {"choices": ["cross-entropy", "focal"]},
}
DEFAULT = {"training.learning_rate": 3e-5, "training.epochs": 2.0, "loss.kind": "cross-entropy"}
SHARES = [1 / 9, 1 / 3, 1.0]


def summary(trials: int = 18, recommended: str = "winner", **changes: Any) -> dict[str, Any]:
    """Return the content of search.json: the first trial is the default, and the best ones have come furthest.

    Args:
        trials: their number. The last one has failed.
        recommended: what the comparison says: winner or default; "" if there is none yet.
        changes: other values.
    """
    made = [_trial(number, random.Random(number)) for number in range(trials)]
    made[-1] |= {"state": "failed", "message": "loss.kind focal: it has no classes"} if trials > 1 else {}
    for height, kept in ((1, trials), (2, trials // 3), (3, trials // 6)):
        for trial in sorted(made[: trials - 1] or made, key=lambda one: -one["worth"])[: max(kept, height == 1)]:
            _reach(trial, height)
    best = max(made, key=lambda trial: (len(trial["rungs"]), trial["metric"] or 0.0))
    for trial in made:
        del trial["worth"]
    importance = {"training.learning_rate": 0.61, "training.epochs": 0.27, "loss.kind": 0.12}
    return {
        "search": "SST-2-0123abcd", "task": "SST-2", "metric": "accuracy", "seed": 1, "minutes": 30.0, "limit": 0,
        "seconds": 1741.0, "space": SPACE, "default": DEFAULT, "shares": SHARES, "trials": made,
        "best": best["number"], "importance": importance if trials > 3 else {},
        "comparison": _comparison(recommended) if recommended else None, **changes,
    }  # fmt: skip


def _trial(number: int, chance: random.Random) -> dict[str, Any]:
    values: dict[str, Any] = dict(DEFAULT) if number == 0 else {
        "training.learning_rate": float(f"{10 ** chance.uniform(-5, -3.7):.3g}"),
        "training.epochs": float(chance.randint(1, 4)), "loss.kind": chance.choice(["cross-entropy", "focal"]),
    }  # fmt: skip
    worth = 0.9 - 0.03 * abs(values["training.learning_rate"] / 8e-5 - 1) + chance.gauss(0, 0.004)
    return {
        "number": number, "run": f"SST-2-0123abcd-trial-{number:04d}", "state": "paused", "values": values,
        "default": number == 0, "rungs": [], "metric": None, "metrics": {}, "passed": None, "seconds": 0.0,
        "message": "", "worth": worth,
    }  # fmt: skip


def _reach(trial: dict[str, Any], height: int) -> None:
    share = SHARES[height - 1]
    metric, spent = (
        round(trial["worth"] - 0.06 * (1 - share), 4),
        round(90 * trial["values"]["training.epochs"] * share, 1),
    )
    trial["rungs"].append({"step": round(300 * share), "metric": metric, "seconds": spent})
    done = {"state": "complete", "passed": True} if height == len(SHARES) else {}
    trial |= {"metric": metric, "metrics": {"accuracy": metric}, "seconds": spent} | done


def _comparison(recommended: str) -> dict[str, Any]:
    better = recommended == "winner"
    difference, interval = (0.0139, [0.0031, 0.0247]) if better else (0.0042, [-0.0061, 0.0145])
    return {
        "seeds": [2, 3, 4],
        "winner": {"runs": ["winner-2", "winner-3", "winner-4"], "values": [0.9025, 0.9002, 0.9071], "mean": 0.9033},
        "default": {"runs": ["default-2", "default-3", "gone"], "values": [0.8911, 0.8865, 0.8905], "mean": 0.8894},
        "rows": 872, "difference": difference, "interval": interval, "p": 0.011 if better else 0.43,
        "recommended": recommended,
        "reason": "accuracy 0.9033 with the winner's settings and 0.8894 with the default, means of 3 seeds; "
        f"difference {difference:+.4f}, 95 % interval {interval[0]:+.4f} to {interval[1]:+.4f}"
        + ("" if better else ": no more than chance may do"),
        "experiment": {"training": {"learning_rate": 8e-5}} if better else {},
    }  # fmt: skip
