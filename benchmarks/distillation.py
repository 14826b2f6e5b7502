"""What a teacher is worth: `.venv/tasks/bin/python -m benchmarks.distillation --data glue --text imdb.gz --seeds 1`.

The same student is trained for equally many steps from hard labels alone and from a teacher, with unlabeled text if it
is named. Without --teacher, --teacher-encoder is fine-tuned first. With --home, all runs stay there, and other seeds
use the same teacher and its logits.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.scores import paired_difference
from benchmarks.tables import spread, table
from include.experiment import Experiment
from include.named_experiments import load
from include.runs import Run
from tasks.runner import run_stage
from tests.tasks.encoder.samples import tiny_encoder

STAGES = ("validate", "preprocess", "pretrain", "teach", "train", "evaluate")
EVALUATIONS = 10  # of each training, so that each chooses its best model among equally many
HARD, DISTILLED = "hard labels, as many steps", "distilled"
QUICK = ("preprocessing.sample=0.03", "preprocessing.max_length=16", "training.epochs=0.5", "training.ranks=1")


def main() -> None:
    """Print a line per training, and at the end the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder in GLUE's layout; without it, the bundled corpus")
    parser.add_argument("--experiment", help="a named experiment; sst2 with --data, movies without")
    parser.add_argument("--student", default="all-MiniLM-L6-v2", help="the encoder of the student")
    parser.add_argument("--teacher", default="", help="model.teacher: a folder, or a run of --home")
    parser.add_argument("--teacher-encoder", default="all-mpnet-base-v2", help="the encoder of a teacher to train")
    parser.add_argument("--text", default="", help="distillation.text")
    parser.add_argument("--max-rows", type=int, default=0, help="distillation.max_rows")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="other fields of the students")
    parser.add_argument("--home", type=Path, help="the folder for all runs; by default a temporary one")
    parser.add_argument("--quick", action="store_true", help="tiny random encoders and few rows: does it work?")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        print(_compare(arguments, arguments.home or Path(scratch)))


def _compare(arguments: argparse.Namespace, home: Path) -> str:
    source = arguments.experiment or ("sst2" if arguments.data else "movies")
    base = [f"data.path={arguments.data.resolve()}"] if arguments.data else []
    seeds = arguments.seeds
    encoders = [arguments.student, arguments.teacher_encoder]
    if arguments.quick:
        base, seeds = [*base, *QUICK], [1, 2]
        encoders = [str(tiny_encoder(home / name)) for name in ("student", "teacher")]
    teacher = arguments.teacher
    if not teacher:
        teacher = "teacher"
        _run(home, teacher, load(source, [*base, f"model.name={encoders[1]}"]))
    taught = [f"model.teacher={teacher}"]
    if arguments.text:
        taught += [f"distillation.text={arguments.text}", f"distillation.max_rows={arguments.max_rows}"]
    taught += [each for each in arguments.set if each.startswith("distillation.")]
    others = [each for each in arguments.set if not each.startswith("distillation.")]
    common = [*others, "training.patience=0", *base]
    found: dict[str, list[dict[str, Any]]] = {DISTILLED: [], HARD: []}
    for seed in seeds:
        own = [*common, f"model.name={encoders[0]}", f"training.seed={seed}"]
        experiment = _with_evaluations(load(source, [*own, *taught]))
        distilled = _run(home, f"distilled-{seed}", experiment)
        found[DISTILLED].append(distilled)
        epochs = distilled["steps"] * experiment.training.batch_size / distilled["labeled"]
        alone = _with_evaluations(load(source, [*own, f"training.epochs={epochs}"]))
        found[HARD].append(_run(home, f"hard-{seed}", alone))
    return _table(experiment, found, seeds)


def _with_evaluations(experiment: Experiment) -> Experiment:
    evaluations = math.ceil(EVALUATIONS / experiment.training.epochs)
    training = experiment.training.model_copy(update={"evaluations": evaluations})
    return experiment.model_copy(update={"training": training})


def _run(home: Path, name: str, experiment: Experiment) -> dict[str, Any]:
    """Run the stages, and return what the table needs of their results."""
    run = Run(home / "runs" / name)
    results: dict[str, Mapping[str, Any]] = {}
    for stage in STAGES:
        results[stage] = run_stage(stage, experiment, run).manifest.result
    metric = results["evaluate"]["metrics"][experiment.task.metric]
    said = {
        "metric": metric,
        "steps": results["train"]["steps"],
        "labeled": results["preprocess"]["rows"]["train"],
        "seconds": results["train"]["seconds"],
        "teacher": results["evaluate"].get("teacher"),
    }
    print(
        f"{name}: {experiment.task.metric} {metric:.4f} after {said['steps']} steps, {said['seconds']:.0f} s",
        flush=True,
    )
    return said


def _table(experiment: Experiment, found: Mapping[str, list[dict[str, Any]]], seeds: list[int]) -> str:
    values = {name: [each["metric"] for each in some] for name, some in found.items()}
    metric = f"{experiment.task.metric}, seeds {', '.join(map(str, seeds))}"
    teachers = [each["teacher"] for each in found[DISTILLED]]
    rows = [("teacher", f"{teachers[0]['teacher']:.4f} ({teachers[0]['metric']})", "", "")]
    for name, own in values.items():
        less = paired_difference(own, values[HARD]) if len(own) > 1 else f"{own[0] - values[HARD][0]:+.4f}"
        rows.append((name, spread(own, 4), less, spread([each["seconds"] for each in found[name]])))
    below = [
        f"{each['difference']:+.4f} ({each['interval'][0]:+.4f} to {each['interval'][1]:+.4f})" for each in teachers
    ]
    times = spread([each["rows_per_second"]["times"] for each in teachers], 2)
    return (
        f"{table((experiment.task.name, metric, 'less hard labels', 's'), rows)}\n\n"
        f"Student less teacher on the same dev rows, by seed: {'; '.join(below)}. Rows per second: {times} times the "
        "teacher's."
    )


if __name__ == "__main__":
    main()
