"""Whether prediction.max_risk keeps what it says, and how much is answered.

A model is trained on some rows of a task, as `make run` does. From the rows that it has not seen, many times, some are
drawn as dev, and what it then answers is checked on all others.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import softmax

from benchmarks.tables import table
from include.glue import TASKS
from include.named_experiments import load
from include.runs import Run
from tasks.encoder.loading import load_trained
from tasks.inference.runner import Runner
from tasks.inference.trained_model import TorchBackend
from tasks.runner import run_stage
from tasks.scoring.risk import Guard
from tasks.scoring.scored import ScoredSplit

RISKS = (0.02, 0.05, 0.1)
#: The rows that models are trained on, of each task, and the most rows that they have not seen.
TRAINED = {"SST-2": 4000, "STS-B": 2000, "STS-B in 6 classes": 2000}
POOL = 20_000
_COLUMNS = {"SST-2": ["sentence"], "STS-B": ["sentence1", "sentence2"]}


def main() -> None:
    """Print a table with a row for each task and risk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder in GLUE's layout; without it, made-up logits")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="a bundled encoder, a folder or a hub name")
    parser.add_argument("--kind", default="encoder", help="of the model; frozen and tfidf take seconds to train")
    parser.add_argument("--dev", type=int, default=872, help="rows that are drawn as dev, at most a tenth of all")
    parser.add_argument("--splits", type=int, default=100, help="how many times")
    parser.add_argument("--quick", action="store_true", help="made-up logits: does it work?")
    arguments = parser.parse_args()
    header = ("task, rows", "risk", "max_risk", "kept in", "realized, mean", "worst", "answered, labels, or width")
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in TRAINED:
            quick = arguments.quick or arguments.data is None
            pool = made_up(name) if quick else trained_pool(name, arguments, Path(scratch))
            for max_risk in RISKS:
                rows += _measured(name, pool, max_risk, arguments.dev, 10 if arguments.quick else arguments.splits)
    print(table(header, rows))


def _measured(name: str, pool: ScoredSplit, max_risk: float, dev: int, splits: int) -> Iterator[tuple[str, ...]]:
    """Yield a row for each promise: labels of a minimum confidence, sets, or intervals."""
    found: dict[str, list[tuple[float, float]]] = {}
    random, dev = np.random.default_rng(0), min(dev, len(pool) // 10)
    for _ in range(splits):
        order = random.permutation(len(pool))
        for what, realized, size in realized_risks(pool.at(order[:dev]), pool.at(order[dev:]), max_risk):
            found.setdefault(what, []).append((realized, size))
    for what, pairs in found.items():
        risks, sizes = np.array(pairs).T
        kept = f"{np.mean(risks <= max_risk):.0%} of {splits}"
        figures = f"{risks.mean():.4f}", f"{risks.max():.4f}", f"{sizes.mean():.3f}"
        yield f"{name}, {len(pool):,}", what, f"{max_risk:g}", kept, *figures


def realized_risks(dev: ScoredSplit, rest: ScoredSplit, max_risk: float) -> Iterator[tuple[str, float, float]]:
    """Yield what is promised after dev, the share of the rest for which it is wrong, and how much it says."""
    task = dev.task
    guard = Guard.of(task.kind, task.label_names, task.score_range, max_risk, dev.cross_fitted().evidence())
    answers = rest.predicted if task.kind == "regression" else rest.probabilities
    columns = guard.columns(answers)
    if "abstained" in columns:
        answered = np.array([reason is None for reason in columns["abstained"]])
        wrong = (rest.predicted != rest.labels) & answered
        yield "mistakes among the answers", wrong.sum() / max(answered.sum(), 1), float(answered.mean())
    if "label_set" in columns:
        sets, names = columns["label_set"], task.label_names
        missed = [names[label] not in chosen for label, chosen in zip(rest.labels, sets, strict=True)]
        yield "labels outside the set", float(np.mean(missed)), float(np.mean([len(chosen) for chosen in sets]))
    if "low" in columns:
        low, high = np.array(columns["low"]), np.array(columns["high"])
        outside = (rest.labels < low) | (rest.labels > high)
        yield "scores outside the interval", float(outside.mean()), float((high - low).mean())


def trained_pool(name: str, arguments: argparse.Namespace, scratch: Path) -> ScoredSplit:
    """Train a model on some rows of a task, and return the others with their logits."""
    source, rows = name.partition(" in ")[0], TRAINED[name]
    read = {split: _read(arguments.data / source / f"{split}.tsv", name) for split in ("train", "dev")}
    every = read["train"].sample(frac=1, random_state=0)
    folder = scratch / name.replace(" ", "-")
    folder.mkdir(parents=True)
    every[:rows].to_csv(folder / "train.csv", index=False)
    read["dev"].to_csv(folder / "dev.csv", index=False)
    columns = {column: column for column in every}
    kind = {"score_range": [0, 5]} if name == "STS-B" else {"labels": sorted(set(every["label"]))}
    values = {
        "data": {
            "task": "regression" if name == "STS-B" else "classification", "source": "files", "path": str(folder),
            "train": "train.csv", "dev": "dev.csv", "test": "", "columns": columns, **kind,
        },
        "model": {"name": arguments.encoder, "kind": arguments.kind},
        "training": {"learning_rate": 6e-5},
    }  # fmt: skip
    experiment, run = load(json.dumps(values)), Run(folder / "home/runs/one")
    for stage in ("validate", "preprocess", "pretrain", "train"):
        made = run_stage(stage, experiment, run)
    model, pool = made.path / "model", every[rows:][:POOL]
    if len(pool) < POOL / 2:
        pool = pd.concat([pool, read["dev"]])
    texts = list(zip(*(pool[column] for column in columns if column != "label"), strict=True))
    logits = np.concatenate(list(Runner(model, TorchBackend(load_trained(model), threads=2)).logits(texts)))
    labels = pool["label"].map(experiment.task.labels.index) if experiment.task.labels else pool["label"]
    return ScoredSplit(experiment.task, np.arange(len(pool)), labels.to_numpy(), logits, texts)


def _read(file: Path, name: str) -> pd.DataFrame:
    """Read a GLUE file as the columns sentence, for pairs sentence2, and label."""
    table = pd.read_csv(file, sep="\t", quoting=3)
    table = table.rename(columns={"sentence1": "sentence", "score": "label"})
    table = table[[column for column in ("sentence", "sentence2", "label") if column in table]].dropna()
    if name != "STS-B":
        table["label"] = table["label"].round().astype(int).astype(str)
    return table[table["sentence"].str.strip() != ""]


def made_up(name: str) -> ScoredSplit:
    """Return random logits, with labels that are as probable as they say, or scores with an error."""
    random, rows = np.random.default_rng(0), 4000
    task = {"SST-2": TASKS["SST-2"], "STS-B": TASKS["STS-B"]}.get(name, TASKS["MNLI"])
    logits = random.normal(2.5, 3, (rows, task.outputs))
    labels = (logits[:, 0] + random.normal(0, 0.5, rows)).clip(0, 5)
    if task.kind == "classification":
        below = softmax(logits, axis=1).cumsum(axis=1) < random.random((rows, 1))
        labels = below.sum(axis=1).clip(max=task.outputs - 1)
    return ScoredSplit(task, np.arange(rows), labels, logits, [("",)] * rows)


if __name__ == "__main__":
    main()
