"""Training steps to a given metric: `.venv/tasks/bin/python -m benchmarks.search_steps --data FOLDER`.

The folder has SST-2 in GLUE's layout. The rival is Optuna on transformers' Trainer (`hyperparameter_search` with its
default sampler, which trains each proposal to the end), with the same space, encoder and rows. Its metrics count at the
step of each evaluation (two per epoch); ours only when a trial frees its process. With --quick: a few bundled rows.
"""

from __future__ import annotations

import argparse
import logging
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.hf_trainer import BEST, Run, arguments, collator, computes_in_bf16, rows
from include.experiment import Experiment
from include.named_experiments import build
from include.runs import Run as StageRun
from tasks.assets import encoder_folder
from tasks.runner import run_stage
from tasks.training.job import Job
from tests.tasks.search.searches import read

SPACE: dict[str, Any] = {
    "training.learning_rate": {"low": 1e-5, "high": 2e-4, "log": True},
    "training.epochs": [1, 2, 3],
    "training.batch_size": [16, 32],
    "training.warmup": {"low": 0, "high": 0.2, "step": 0.02},
}
Reached = list[tuple[int, float]]  # steps of all trials so far, and the best metric that any has had


def main() -> None:
    """Print the steps to each metric that both searches have reached."""
    options = _options()
    print("| seed | metric | steps, Optuna on Trainer | steps, ours | share |\n| --- | --- | --- | --- | --- |")
    for seed in range(1, options.seeds + 1):
        with tempfile.TemporaryDirectory() as scratch:
            experiment, home = _experiment(options, seed), Path(scratch)
            ours, run = _ours(experiment, home)
            data = run.artifact("preprocess").path
            encoder = encoder_folder(experiment.model.name, experiment.runtime)
            theirs = _theirs(Job(experiment, encoder, data, home / "trainer"), options.steps, seed)
        for metric in sorted({min(ours[-1][1], theirs[-1][1]), theirs[len(theirs) // 2][1]}):
            steps = [next((done for done, best in side if best >= metric), None) for side in (theirs, ours)]
            if None not in steps:
                share = f"{steps[1] / steps[0]:.2f}" if steps[0] and steps[1] else ""
                print(f"| {seed} | {metric:.4f} | {steps[0]} | {steps[1]} | {share} |", flush=True)
        print(f"| {seed} | best | {theirs[-1][1]:.4f} in {theirs[-1][0]} | {ours[-1][1]:.4f} in {ours[-1][0]} | |")


def _experiment(options: argparse.Namespace, seed: int) -> Experiment:
    data = {"task": "SST-2", "source": "glue", "path": str(options.data)} if options.data else {}
    search = {"space": SPACE, "minutes": 600, "trials": options.trials, "seed": seed}
    values: dict[str, Any] = {"data": data, "training": {"ranks": 1}, "search": search}
    values["preprocessing"] = {"sample": options.sample}
    return build(values, "the benchmark's experiment")


def _ours(experiment: Experiment, home: Path) -> tuple[Reached, StageRun]:
    """What our search has reached, and the run of its first trial."""
    order: list[tuple[int, int]] = []

    class Order(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if found := re.match(r"trial (\d+) .*\brung (\d) of", record.getMessage()):
                order.append((int(found[1]), int(found[2]) - 1))

    log = logging.getLogger("tasks.search")
    log.setLevel(logging.INFO)
    log.addHandler(handler := Order())
    run = StageRun(home / "runs" / "tune")
    run_stage("validate", experiment, run)
    found = read(run_stage("search", experiment, run).path)
    log.removeHandler(handler)
    reached, steps, best = Reached(), 0, 0.0
    for number, rung in order:
        rungs = found["trials"][number]["rungs"]
        steps += rungs[rung]["step"] - (rungs[rung - 1]["step"] if rung else 0)
        best = max(best, rungs[rung]["metric"])
        reached.append((steps, best))
    return reached, StageRun(home / "runs" / found["trials"][0]["run"])


def _theirs(job: Job, budget: int, seed: int) -> Reached:
    """What Optuna on Trainer has reached within a number of steps."""
    import optuna
    from transformers import AutoModelForSequenceClassification, Trainer, TrainerCallback

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    reached, way = Reached(), Run(best=True, warmup=0, steps=0)

    class Counter(TrainerCallback):
        steps, best = 0, 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.steps += 1
            control.should_training_stop = self.steps >= budget
            control.should_evaluate = (
                state.global_step % max(1, round(state.max_steps / state.num_train_epochs / 2)) == 0
            )

        def on_evaluate(self, args: Any, state: Any, control: Any, **found: Any) -> None:
            self.best = max(self.best, found["metrics"]["eval_accuracy"])
            reached.append((self.steps, self.best))

    counter = Counter()

    def model(_: Any = None) -> Any:
        return AutoModelForSequenceClassification.from_pretrained(job.encoder, num_labels=2)

    def space(trial: optuna.Trial) -> dict[str, Any]:
        if counter.steps >= budget:
            raise _Spent
        return {
            "learning_rate": trial.suggest_float("learning_rate", 1e-5, 2e-4, log=True),
            "num_train_epochs": trial.suggest_categorical("num_train_epochs", [1, 2, 3]),
            "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [16, 32]),
            "warmup_steps": trial.suggest_float("warmup_steps", 0, 0.2, step=0.02),
        }

    trainer = Trainer(
        args=arguments(job, job.output, per_device_eval_batch_size=64, bf16=computes_in_bf16(), **BEST),
        model_init=model, train_dataset=rows(job, "train", way), eval_dataset=rows(job, "dev", way),
        data_collator=collator(job, way), callbacks=[counter], compute_metrics=_accuracy,
    )  # fmt: skip
    with suppress(_Spent):
        trainer.hyperparameter_search(
            space, lambda metrics: metrics["eval_accuracy"], n_trials=1000, direction="maximize", backend="optuna",
            sampler=optuna.samplers.TPESampler(seed=seed),
        )  # fmt: skip
    return reached


def _accuracy(found: Any) -> dict[str, float]:
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


class _Spent(Exception):
    """The steps are spent."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder with SST-2; else, the bundled rows")
    parser.add_argument("--sample", type=float, default=1, help="the share of the training rows that is used")
    parser.add_argument("--trials", type=int, default=27, help="of our search")
    parser.add_argument("--steps", type=int, default=3000, help="of the rival's search")
    parser.add_argument("--seeds", type=int, default=3, help="searches with other seeds")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.sample, options.trials, options.steps, options.seeds = 0.02, 3, 8, 1
    return options


if __name__ == "__main__":
    main()
