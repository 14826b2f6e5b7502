"""Windows beside truncation on long reviews: `.venv/tasks/bin/python -m benchmarks.long_documents`.

FILE has one review per line, plain or gzip-compressed, such as the unlabeled part of the Large Movie Review Dataset
(Maas et al. 2011). The reviews that name a single rating from 0 to 10, as "7/10" or "8 out of 10", are the documents:
ratings from 7 are positive and those up to 4 negative, as in that data set; those between are left out. The rating is
removed from the text, and a text that occurs again is left out. A third of the documents, chosen by a hash of their
text, is the dev split. Every case trains for equally many epochs on one rank, except the one that takes as many steps
as the windows of the documents take. The best evaluation is kept.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables import spread, table
from include.artifacts import Artifact
from include.named_experiments import build, merge, parse_overrides
from include.runs import Run
from tasks.assets import encoder_folder
from tasks.encoder.batching import Array, TokenTable
from tasks.encoder.loading import load_trained
from tasks.encoder.models import predict_logits
from tasks.launching.launch import launch
from tasks.runner import run_stage
from tasks.training.job import Job
from tests.tasks.encoder.samples import reviews, tiny_encoder

log = logging.getLogger(__name__)
RATING = re.compile(r"(?<![\d/.,])(\d{1,2}(?:\.\d)?)\s*(?:/|out of)\s*10(?![\d/]|th|\.\d)", re.IGNORECASE)
POSITIVE, NEGATIVE = 7, 4  # the lowest and the highest rating of the two classes
DEV = 3  # one of so many documents
LABELS = ("negative", "positive")
CASES: dict[str, tuple[str, ...]] = {
    "truncated to 64 tokens": ("preprocessing.max_length=64",),
    "truncated to 128": (),
    "truncated to 512": ("preprocessing.max_length=512",),
    "windows of 128, 32 shared": ("preprocessing.long=windows",),
}
BASE, WINDOWS = "truncated to 128", "windows of 128, 32 shared"
AS_MANY_STEPS = f"{BASE}, as many steps as windows"
CASES[AS_MANY_STEPS] = ()
SCORED_ONLY = f"{BASE}, scored in windows"
RESAMPLES = 2000

Document = tuple[str, str]  # text and label


@dataclass(frozen=True)
class Trained:
    """What one training of a case has shown.

    Attributes:
        right: whether the prediction for each dev document is right, [documents].
        rows: the number of training rows: documents, or their windows.
        steps: the number of steps.
        rows_per_second: the speed of the training.
        seconds: its duration without evaluations.
    """

    right: Array
    rows: int
    steps: int
    rows_per_second: float
    seconds: float


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reviews", type=Path, help="a file with one review per line; needed unless --quick")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="a bundled encoder, a folder or a hub name")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help=f"with {BASE!r} and {WINDOWS!r}")
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="a tiny random encoder and made-up texts: does it work?")
    arguments = parser.parse_args()
    if not (arguments.reviews or arguments.quick):
        parser.error("name the file with the reviews: --reviews FILE")
    logging.basicConfig(level=logging.INFO)
    with tempfile.TemporaryDirectory() as scratch:
        values, documents = _quick(Path(scratch)) if arguments.quick else _whole(arguments)
        _write(documents, Path(scratch))
        cases, seeds = ((BASE, WINDOWS), [1]) if arguments.quick else (arguments.cases, arguments.seeds)
        print(_compare(cases, values, Path(scratch), seeds))


def rated(lines: Iterable[str]) -> Iterator[Document]:
    """Yield the documents with a rating, without it, and each text once."""
    seen = set()
    for line in lines:
        found = {float(rating) for rating in RATING.findall(line)}
        text = " ".join(RATING.sub(" ", line).split())
        key = "".join(re.findall(r"\w+", text.lower()))
        if len(found) != 1 or key in seen:
            continue
        seen.add(key)
        [rating] = found
        if POSITIVE <= rating <= 10 or rating <= NEGATIVE:
            yield text, LABELS[rating >= POSITIVE]


def _whole(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[Document]]:
    opened = gzip.open if arguments.reviews.suffix == ".gz" else open
    with opened(arguments.reviews, "rt", encoding="utf-8") as lines:
        documents = list(rated(lines))
    training = {"training.epochs": arguments.epochs, "training.batch_size": arguments.batch_size}
    return {"model.name": arguments.encoder, **training}, documents


def _quick(scratch: Path) -> tuple[dict[str, Any], list[Document]]:
    """Return a tiny workload: texts that consist of three or more sentences with the same label."""
    random, sentences = np.random.default_rng(0), [f"{text}." for (text,) in reviews(400)[0]]
    documents = []
    for label, word in zip(LABELS, ("bad", "good"), strict=True):
        own = [text for text in sentences if word in text]
        documents += [(" ".join(random.choice(own, random.integers(3, 30))), label) for _ in range(60)]
    encoder = tiny_encoder(scratch / "encoder", max_position_embeddings=512)
    return {"model.name": str(encoder), "training.epochs": 1, "training.batch_size": 16}, documents


def _write(documents: Iterable[Document], folder: Path) -> None:
    """Write train.csv and dev.csv."""
    splits: dict[str, list[Document]] = {"train": [], "dev": []}
    for text, label in documents:
        digest = hashlib.sha256(text.encode()).digest()
        splits["train" if digest[0] % DEV else "dev"].append((text, label))
    for name, rows in splits.items():
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("sentence", "label"), *rows])


def _compare(cases: Sequence[str], values: Mapping[str, Any], scratch: Path, seeds: Sequence[int]) -> str:
    data = {
        "task": "classification", "source": "files", "path": str(scratch), "labels": list(LABELS),
        "train": "train.csv", "dev": "dev.csv", "test": "dev.csv",
    }  # fmt: skip
    common = merge({"data": data}, {**values, "training.ranks": 1, "training.patience": 0})
    found: dict[str, list[Trained]] = {name: [] for name in (*cases, SCORED_ONLY)}
    data_of = {name: _preprocessed(_with(common, CASES[name]), scratch) for name in cases}
    for seed in seeds:
        for name in cases:
            chosen = _with(common, (*CASES[name], f"training.seed={seed}", "training.evaluations=1"))
            if name == AS_MANY_STEPS:
                rows = {case: len(TokenTable.open(data_of[case].path / "train")) for case in (BASE, WINDOWS)}
                chosen["training"]["epochs"] *= rows[WINDOWS] / rows[BASE]
            output = scratch / f"{seed}-{name}"
            found[name].append(_train(chosen, data_of[name].path, output))
            if name == BASE:
                right = _right(output / "model", data_of[WINDOWS].path / "dev")
                found[SCORED_ONLY].append(Trained(right, 0, 0, 0, 0))
            log.info("%s, seed %d: %.4f", name, seed, found[name][-1].right.mean())
        text = _table(data_of[WINDOWS].manifest.result["rows"], found)
        log.info("after seed %d:\n%s", seed, text)
    return text


def _table(documents: Mapping[str, int], found: Mapping[str, Sequence[Trained]]) -> str:
    header = (
        f"{documents['train']} documents, {documents['dev']} of dev", "dev accuracy, of each seed",
        "mean and interval", f"less {BASE}", "training rows", "steps", "rows per second", "seconds",
    )  # fmt: skip
    return table(header, [_line(name, ones, found[BASE]) for name, ones in found.items()])


def _with(values: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    return merge(dict(values), parse_overrides(overrides))


def _preprocessed(values: Mapping[str, Any], scratch: Path) -> Artifact:
    experiment, run = build(values, "the benchmark"), Run(scratch / "runs" / "benchmark")
    run_stage("validate", experiment, run)
    return run_stage("preprocess", experiment, run)


def _train(values: Mapping[str, Any], data: Path, output: Path) -> Trained:
    experiment = build(values, "the benchmark")
    output.mkdir()
    launch(Job(experiment, encoder_folder(experiment.model.name, experiment.runtime), data, output))
    said = json.loads((output / "training.json").read_text(encoding="utf-8"))
    right, rows = _right(output / "model", data / "dev"), len(TokenTable.open(data / "train"))
    return Trained(right, rows, said["steps"], said["rows_per_second"], said["seconds"])


def _right(model: Path, dev: Path) -> Array:
    documents = TokenTable.open(dev)
    right: Array = predict_logits(load_trained(model), documents).argmax(1) == documents.labels[documents.documents]
    return right


def _line(name: str, ones: Sequence[Trained], base: Sequence[Trained]) -> tuple[str, ...]:
    right, other = (np.mean([one.right for one in trained], axis=0) for trained in (ones, base))
    scores = ", ".join(f"{one.right.mean():.4f}" for one in ones)
    line = (name, scores, _interval(right), "" if ones is base else _interval(right - other, "+"))
    if name == SCORED_ONLY:
        return *line, "", "", "", ""
    speed, seconds = [one.rows_per_second for one in ones], [one.seconds for one in ones]
    return *line, f"{ones[0].rows:,}", f"{ones[0].steps:,}", spread(speed, 1), spread(seconds)


def _interval(values: Array, sign: str = "") -> str:
    """Return the mean over the dev documents with its percentile bootstrap interval at 95 %."""
    drawn = np.random.default_rng(0).choice(values, (RESAMPLES, len(values)))
    low, high = np.percentile(drawn.mean(1), (2.5, 97.5))
    return f"{values.mean():{sign}.4f} ({low:{sign}.4f} to {high:{sign}.4f})"


if __name__ == "__main__":
    main()
