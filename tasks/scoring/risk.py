"""What a model may answer so that its error stays below a risk, with 95 % confidence over the draw of the dev rows.

The evidence of a model are counts of dev rows at fixed LEVELS of confidence. From them and a risk, `Guard.of` finds:

- for one class per row, the lowest confidence from which the error among the answered rows (the selective risk) is at
  most the risk. Each level is a hypothesis, "the error of the rows from here on exceeds the risk", whose p-value is the
  binomial tail of the mistakes among these rows. Learn then Test (Angelopoulos et al. 2021, arXiv:2110.01052) tests
  them in a fixed sequence, from the highest confidence down. It has two starts, at a quarter and at half of the rows,
  between which the 5 % are divided, and a start hands its part on for as long as every level passes (the fallback
  procedure, Wiens and Dmitrienko 2005): with fewer rows, a single mistake would end the sequence. As the starts depend
  on how many rows are that confident, the proof needs that the error does not grow with the confidence.
- for more than two classes, and for several labels per row, the set of labels with a probability that misses a label of
  a row with at most this risk: split conformal prediction with the scores of LAC (Sadinle, Lei and Wasserman 2019),
  which has the smallest sets on average. Those of APS (Romano et al. 2020) are larger, for a coverage that varies less
  between easy and hard rows. If no class is likely enough, the set is the most probable class.
- for scores, an interval that misses the row's score with at most this risk: split conformal prediction with absolute
  errors, clipped to the range.

Sets and intervals are wide enough not for the mean of all draws of dev, as usual (conformal risk control, Angelopoulos
et al. 2022, arXiv:2208.02814, bounds no more than this mean), but for 95 % of them: the binomial tail of the missed
rows is at most 5 % (Vovk 2012, arXiv:1209.2673, proposition 2b; Wilks 1941). The guarantee is for rows that are drawn
like dev. It does not know that dev has also chosen the checkpoint.

This file is saved with every package, so it imports nothing of the project.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: What dev said of one form: see `count`.
Evidence = Mapping[str, Any]
#: The file of a package that has the evidence of all its forms by name.
EVIDENCE = "evidence.json"
#: The share of the draws of dev for which the guarantee holds.
CONFIDENCE = 0.95
#: Confidences from 0 to 1, denser where models are confident. They have four decimals, so that messages can show them.
LEVELS: Array = np.union1d(np.arange(0, 9900, 20), np.arange(9900, 10001)) / 10_000
#: The shares of the rows at which sequences of tests start.
_STARTS = (0.25, 0.5)
_MOST_TIMES = 50  # as many rows as dev has; these say little of still more


def count(kind: str, labels: Array, answers: Array, score_range: Sequence[float] | None = None) -> dict[str, Any]:
    """Return the evidence of labeled rows: `rows`, and for each of LEVELS the rows that it concerns.

    `answered` are those with at least this confidence, `wrong` the mistakes among them, and `missed` those with a label
    or score outside the set or interval of this level.

    Args:
        kind: of the task.
        labels: class ids or scores, [n], or zeros and ones, [n, labels].
        answers: probabilities, [n, labels], or scores, [n].
        score_range: lowest and highest score of a regression.
    """
    if kind == "regression":
        low, high = score_range or (0.0, 1.0)
        missed = np.abs(labels - answers.clip(low, high))[:, None] > LEVELS * (high - low)
        return {"rows": len(labels), "missed": missed.sum(axis=0).tolist()}
    if kind == "multilabel":
        least = np.where(labels == 1, answers, 1.0).min(axis=1)
        return {"rows": len(labels), "missed": (least[:, None] < _cut(LEVELS)).sum(axis=0).tolist()}
    rows = np.arange(len(labels))
    confident, right = answers.max(axis=1)[:, None] >= LEVELS, answers.argmax(axis=1) == labels
    # The most probable class is always in the set.
    missed = (answers[rows, labels][:, None] < _cut(LEVELS)) & ~right[:, None]
    return {
        "rows": len(labels),
        "answered": confident.sum(axis=0).tolist(),
        "wrong": (confident & ~right[:, None]).sum(axis=0).tolist(),
        "missed": missed.sum(axis=0).tolist(),
    }


def _cut(level: Any) -> Any:
    """Return the lowest probability of a label in the set of a level."""
    return np.round(1 - level, 4)


@dataclass(frozen=True)
class Guard:
    """What a model may answer with a risk. See the module for what the columns mean."""

    kind: str
    labels: tuple[str, ...]
    score_range: tuple[float, float] | None
    max_risk: float
    evidence: Evidence
    least: float | None = None  # the lowest confidence of an answer; None: no answer is safe
    level: float = 1.0  # of sets and intervals; at 1 they hold everything

    @classmethod
    def of(
        cls,
        kind: str,
        labels: Sequence[str],
        score_range: Sequence[float] | None,
        max_risk: float,
        evidence: Evidence,
    ) -> Self:
        """Find the levels for a risk."""
        low_high = None if score_range is None else (float(score_range[0]), float(score_range[1]))
        least, level = _least(evidence, max_risk), _level(evidence, max_risk)
        return cls(kind, tuple(labels), low_high, max_risk, evidence, least, 1.0 if level is None else level)

    @classmethod
    def read(cls, package: Path, form: str, max_risk: float) -> Self:
        """Find the levels of a form of a package. Raise FileNotFoundError or KeyError if it lacks the evidence."""
        said = json.loads((package / "package.json").read_text(encoding="utf-8"))
        evidence = json.loads((package / EVIDENCE).read_text(encoding="utf-8"))[form]
        return cls.of(said["kind"], said["labels"], said.get("score_range"), max_risk, evidence)

    @property
    def abstains(self) -> bool:
        """Whether there are rows without an answer: of models that give each row one class."""
        return self.kind == "classification"

    @property
    def answered(self) -> float:
        """The share of the dev rows that are answered."""
        if not self.abstains:
            return 1.0
        return 0.0 if self.least is None else float(self.evidence["answered"][_at(self.least)] / self.evidence["rows"])

    @property
    def error(self) -> float | None:
        """The share of mistakes among the answered dev rows; None if none is answered."""
        if self.least is None:
            return None
        return float(self.evidence["wrong"][_at(self.least)] / self.evidence["answered"][_at(self.least)])

    def columns(self, answers: Array) -> dict[str, list[Any]]:
        """Return columns with a value for each row, given probabilities, [n, labels], or scores, [n].

        `abstained` is why there is no answer, or None; `label_set` a list of labels; `low` and `high` the interval.
        """
        if self.kind == "regression":
            low, high = self.score_range or (-math.inf, math.inf)
            half, answers = self.level * (high - low), answers.clip(low, high)
            return {"low": (answers - half).clip(low, high).tolist(), "high": (answers + half).clip(low, high).tolist()}
        found: dict[str, list[Any]] = {}
        if self.abstains:
            found["abstained"] = [self._reason(one) for one in answers.max(axis=1).tolist()]
        if not self.abstains or len(self.labels) > 2:
            inside = answers >= _cut(self.level)
            if self.abstains:
                inside[np.arange(len(answers)), answers.argmax(axis=1)] = True
            found["label_set"] = [[self.labels[at] for at in np.flatnonzero(row)] for row in inside]
        return found

    def _reason(self, confidence: float) -> str | None:
        if self.least is None:
            return f"no confidence is certified for max_risk {self.max_risk:g}"
        if confidence >= self.least:
            return None
        shown = math.floor(confidence * 10_000) / 10_000  # rounded up, it might look like enough
        return f"confidence {shown:.4g} is below {self.least:.4g}, as max_risk {self.max_risk:g} requires"

    def says(self) -> str:
        """Return in a sentence what the model answers with this risk."""
        risk, rows = f"max_risk {self.max_risk:g}", self.evidence["rows"]
        if self.abstains:
            if self.least is None:
                return f"{risk} cannot be certified with {rows:,} dev rows, so nothing is answered: {self._remedy()}"
            return f"{risk} is certified from confidence {self.least:.4g} on: {self.answered:.1%} of dev is answered"
        what = "intervals hold every score" if self.kind == "regression" else "sets hold every label"
        if self.level == 1:
            return f"{risk} cannot be certified with {rows:,} dev rows, so {what}: add dev rows, or allow more risk"
        if self.kind == "regression":
            low, high = self.score_range or (0.0, 1.0)
            return f"{risk} is certified for scores with an interval of {self.level * (high - low):.4g} to both sides"
        return f"{risk} is certified for sets of all labels with a probability of at least {_cut(self.level):.4g}"

    @property
    def is_certified(self) -> bool:
        """Whether the dev rows suffice for the risk."""
        return self.least is not None if self.abstains else self.level < 1

    def _remedy(self) -> str:
        """Say what would do: more rows that are like those of dev, or a larger risk."""
        risks = [round(self.max_risk + step / 200, 4) for step in range(1, 200)]
        risk = next((risk for risk in risks if risk < 1 and _least(self.evidence, risk) is not None), None)
        allowed = "" if risk is None else f"allow max_risk {risk:g}"
        times = 1.0
        while (times := times * 1.25) <= _MOST_TIMES:
            more = {name: np.ceil(times * np.asarray(self.evidence[name])).astype(int) for name in self.evidence}
            if _least(more, self.max_risk) is not None:
                return " or ".join(filter(None, [f"have about {int(more['rows']):,} dev rows like these", allowed]))
        return f"{allowed or 'train a better model'}; more dev rows like these would not do"


def _at(level: float) -> int:
    return int(np.searchsorted(LEVELS, level))


def _least(evidence: Evidence, max_risk: float) -> float | None:
    """Return the lowest confidence from which the error is certified; None if there is none."""
    if "answered" not in evidence:
        return None
    answered, wrong = (np.asarray(evidence[name])[::-1] for name in ("answered", "wrong"))
    # With fewer rows, no test can pass.
    fewest = math.ceil(math.log((1 - CONFIDENCE) / len(_STARTS)) / math.log1p(-max_risk))
    starts = [max(math.ceil(share * int(evidence["rows"])), fewest) for share in _STARTS]
    found = certified(answered, wrong, max_risk, starts)
    return None if found is None else float(LEVELS[::-1][found])


def _level(evidence: Evidence, max_risk: float) -> float | None:
    missed = np.asarray(evidence["missed"])[::-1]
    found = certified(np.full(len(missed), evidence["rows"]), missed, max_risk, [1])
    return None if found is None else float(LEVELS[::-1][found])


def certified(rows: Array, wrong: Array, max_risk: float, starts: Sequence[int]) -> int | None:
    """Return the last place at which a risk is certified; None if there is none.

    Each place has a number of rows, ascending, and of the mistakes among them. `starts` are numbers of rows, ascending.
    """
    waiting, budget, found = list(starts), 0.0, None
    for place, (count, mistakes) in enumerate(zip(rows.tolist(), wrong.tolist(), strict=True)):
        while waiting and count >= waiting[0]:
            waiting.pop(0)
            budget += (1 - CONFIDENCE) / len(starts)
        if budget and binomial_tail(mistakes, count, max_risk) <= budget:
            found = place
        else:
            budget = 0.0
    return found


def binomial_tail(mistakes: int, rows: int, risk: float) -> float:
    """Return the probability of at most this many mistakes in rows of which each is one with this risk."""
    if mistakes >= rows:
        return 1.0
    number = np.arange(1, mistakes + 1)
    steps = np.log((rows - number + 1) / number) + math.log(risk) - math.log1p(-risk)
    # The logarithms of the probabilities of none, one, two, ... mistakes.
    terms = np.cumsum(np.concatenate([[rows * math.log1p(-risk)], steps]))
    return min(float(np.exp(terms - terms.max()).sum() * math.exp(terms.max())), 1.0)
