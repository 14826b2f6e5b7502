"""A home with many runs that look like real ones, behind which are a few models: to measure, and to look at pages."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from include.artifacts import ArtifactStore, Manifest
from include.experiment import Experiment
from include.named_experiments import load
from include.stages import PIPELINE
from spark_bert.deployment.places import run_folder

ROWS, STEPS, MODELS = 1037, 504, 6
DAGS = ("finetune", "retrain", "ablation", "leaderboard", "")  # "" is the command line
NOW = 1_795_400_000  # seconds since 1970, in November 2026
_WORDS = "a the film story never quite finds its heart but this warm clever drama keeps you smiling until the end"
_NAMES = ("negative", "positive")


def make_home(home: Path, count: int) -> list[tuple[str, str]]:
    """Fill a home with runs, and return their Dag ids and run ids; both are "" for a run of the command line."""
    os.environ["SPARK_BERT_HOME"] = str(home)
    models = [_Model(home, number) for number in range(MODELS)]
    return [models[number % MODELS].run(number) for number in range(count)]


class _Model:
    """A model that many runs have made, found, and evaluated."""

    def __init__(self, home: Path, number: int) -> None:
        self.home, self.random, self.key = home, random.Random(number), f"{number:016x}"
        self.experiment = load("movies", [f"training.seed={number}", f"training.learning_rate={number + 1}e-5"])
        self.results = {stage: {"stage": stage, "seconds": 9.5, "files": {}} for stage in PIPELINE}
        self._train(0.86 + 0.004 * number)

    def run(self, number: int) -> tuple[str, str]:
        """Write the record of a run of it, and return the ids of its Dag and its Dag run."""
        dag_id, minutes = DAGS[number % len(DAGS)], NOW // 60 - 7 * number
        run_id = (
            f"manual__2026-{minutes % 12 + 1:02}-{minutes % 28 + 1:02}T10:00:00.{number:06}+00:00" if dag_id else ""
        )
        folder = run_folder(dag_id, run_id) if dag_id else self.home / f"runs/by-hand-{number}"
        folder.mkdir(parents=True)
        ids = {"dag_id": dag_id, "run_id": run_id} if dag_id else {}
        record = {
            "run": folder.name,
            **ids,
            "experiment": self._experiment(number),
            "stages": self._stages(minutes * 60),
        }
        (folder / "run.json").write_text(json.dumps(record, indent=1))
        os.utime(folder / "run.json", (minutes * 60,) * 2)
        return dag_id, run_id

    def _experiment(self, number: int) -> dict[str, Any]:
        changed = Experiment.model_dump(self.experiment, mode="json")
        changed["training"]["weight_decay"] = number % 7 / 100
        return changed

    def _stages(self, began: float) -> dict[str, Any]:
        return {
            stage: {
                "key": self.key,
                "path": f"artifacts/{stage}/{self.key}",
                "exit_code": 0,
                "message": "",
                "started": began + 60 * at,
                "ended": began + 60 * at + 55,
                "reused": False,
                "result": result,
            }
            for at, (stage, result) in enumerate(self.results.items())
        }

    def _train(self, accuracy: float) -> None:
        curves = list(self._curves(accuracy))
        rows = list(self._rows(accuracy))
        right = sum(row["correct"] for row in rows) / ROWS
        half = 1.96 * math.sqrt(right * (1 - right) / ROWS)
        figures = {
            "task": "movie-reviews", "metric": "accuracy", "rows": ROWS, "interval": [right - half, right + half],
            "metrics": {"accuracy": right, "precision": right - 0.004, "recall": right + 0.002, "f1": right - 0.001},
            "label_names": _NAMES, "confusion": [self._confused(rows, label) for label in _NAMES],
            "classes": {name: {"rows": ROWS // 2, "precision": right, "recall": right, "f1": right} for name in _NAMES},
        }  # fmt: skip
        trained = {
            "metric": "accuracy", "best": right, "best_step": STEPS, "steps": STEPS, "planned_steps": STEPS,
            "rows_per_second": round(self.random.uniform(60, 90), 1), "padding_share": 0.0109, "device": "cpu",
            "memory": self.random.randrange(10**9, 2 * 10**9), "seconds": round(self.random.uniform(200, 260), 1),
            "precision": "fp32", "ranks": 1, "threads": 2, "torch": "2.13.0+cpu",
        }  # fmt: skip
        self._commit("train", trained, {"metrics.jsonl": _lines(curves)})
        evaluated = {"metrics": figures["metrics"], "rows": ROWS, "files": {"report": "report.html"}}
        self._commit("evaluate", evaluated, {"metrics.json": json.dumps(figures), "rows.jsonl": _lines(rows)})
        self.results["gate"] |= {"passed": right > 0.865, "task": "movie-reviews"}
        forms = [{"name": f"form-{at}", "engine": "onnxruntime", "megabytes": 90.4, "p50": 8.66} for at in range(5)]
        self.results["package"] |= {"served": "onnxruntime-fp32", "forms": forms}

    def _commit(self, stage: str, result: dict[str, Any], files: dict[str, str]) -> None:
        self.results[stage] |= result
        store = ArtifactStore(self.home)
        with store.writing(stage, self.key) as folder:
            for name, text in files.items():
                (folder / name).write_text(text)
            store.commit(folder, Manifest(stage, self.key, 1, {}, {}, "", "", self.results[stage]))

    def _curves(self, accuracy: float) -> Iterator[dict[str, Any]]:
        for step in range(2, STEPS + 1, 2):
            done = step / STEPS
            loss = 0.25 + 0.44 * math.exp(-6 * done) + self.random.gauss(0, 0.05)
            rate = self.experiment.training.learning_rate * min(done / 0.06, (1 - done) / 0.94)
            yield {
                "step": step, "epoch": 2 * done, "time": NOW + step / 2, "loss": loss, "learning_rate": rate,
                "grad_norm": self.random.uniform(0.5, 4), "rows_per_second": self.random.gauss(78, 9),
                "memory": 1.4e9 + 5e8 * done, "padding_share": self.random.uniform(0, 0.02), "bytes_rest": 0,
            }  # fmt: skip
            if step % (STEPS // 4) == 0:
                measured = accuracy - 0.03 * (1 - done)
                yield {"step": step, "epoch": 2 * done, "dev_loss": 0.31 + 0.05 * (1 - done), "accuracy": measured}

    def _rows(self, accuracy: float) -> Iterator[dict[str, Any]]:
        texts = random.Random(0)  # the same for all models
        for number in range(ROWS):
            text, difficulty = " ".join(texts.choices(_WORDS.split(), k=texts.randrange(5, 40))), texts.random()
            label, correct = texts.choice(_NAMES), self.random.gauss(difficulty, 0.08) < accuracy
            prediction = label if correct else _NAMES[1 - _NAMES.index(label)]
            sure = self.random.uniform(0.5, 1)
            yield {
                "row": number, "text": text, "label": label, "prediction": prediction, "correct": correct,
                "confidence": sure, "probabilities": [1 - sure, sure], "slices": ["length:short", f"label:{label}"],
            }  # fmt: skip

    def _confused(self, rows: list[dict[str, Any]], label: str) -> list[int]:
        return [sum((row["label"], row["prediction"]) == (label, name) for row in rows) for name in _NAMES]


def _lines(values: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)
