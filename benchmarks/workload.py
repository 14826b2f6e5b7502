"""What the benchmarks train on: SST-2 or another named experiment's data, the bundled corpus, or a tiny stand-in."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from include.experiment import Experiment
from include.named_experiments import changed, load, parse_overrides
from include.runs import Run
from tasks.assets import encoder_folder
from tasks.encoder.batching import TokenTable
from tasks.runner import run_stage
from tasks.training.job import Job
from tests.tasks.encoder.samples import reviews, tiny_encoder, write_split

BATCH = 32
TINY_ROWS = 128
TINY_LENGTH = 32


@dataclass(frozen=True)
class Workload:
    """An experiment, its prepared data and its encoder.

    Attributes:
        experiment: what a case changes goes on top.
        data: preprocess's artifact, or some rows of it.
        encoder: folder of the pretrained encoder.
    """

    experiment: Experiment
    data: Path
    encoder: Path

    def job(self, output: Path, *overrides: str) -> Job:
        """A training that writes into the folder output, with `section.field=value` on top."""
        output.mkdir(parents=True, exist_ok=True)
        experiment = changed(self.experiment, parse_overrides(overrides), "the case")
        return Job(experiment, self.encoder, self.data, output)

    @property
    def rows(self) -> int:
        """Training rows."""
        return len(TokenTable.open(self.data / "train"))

    @property
    def texts(self) -> list[str]:
        """The training texts, which must not be pairs."""
        tokens = TokenTable.open(self.data / "train")
        return [text for (text,) in tokens.sentences(np.arange(len(tokens)))]

    def with_rows(self, count: int) -> Workload:
        """The same on as many of its training rows, or all when there are fewer; which ones is always the same."""
        folder = self.data.with_name(f"{self.data.name}-{count}")
        if not folder.exists():
            (folder / "train").mkdir(parents=True)
            (folder / "dev").symlink_to((self.data / "dev").resolve())
            parts = sorted((self.data / "train").glob("part-*.arrow"))
            table = pa.concat_tables([pa.ipc.open_file(pa.memory_map(str(part))).read_all() for part in parts])
            chosen = np.random.default_rng(0).permutation(len(table))[:count]
            with pa.ipc.new_file(folder / "train" / "part-00000.arrow", table.schema) as file:
                file.write_table(table.take(pa.array(chosen)).combine_chunks())
        return Workload(self.experiment, folder, self.encoder)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that prepare reads."""
    parser.add_argument("--data", type=Path, help="a folder in GLUE's layout; without it, the bundled corpus")
    parser.add_argument("--experiment", help="a named experiment; sst2 with --data, movies without")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2", help="a bundled encoder, a folder or a hub name")
    parser.add_argument("--quick", action="store_true", help="a tiny random encoder and a few steps: does it work?")


def prepare(arguments: argparse.Namespace, scratch: Path, *overrides: str) -> Workload:
    """The workload that the arguments ask for, below the folder scratch; seeds and rates are the experiment's."""
    if arguments.quick:
        return _tiny(scratch, overrides)
    source = arguments.experiment or ("sst2" if arguments.data else "movies")
    chosen = [f"model.name={arguments.encoder}", f"training.batch_size={BATCH}", *overrides]
    if arguments.data:
        chosen.append(f"data.path={arguments.data.resolve()}")
    experiment, run = load(source, chosen), Run(scratch / "runs" / "benchmark")
    run_stage("validate", experiment, run)
    data = run_stage("preprocess", experiment, run).path
    return Workload(experiment, data, encoder_folder(experiment.model.name, experiment.runtime))


def _tiny(scratch: Path, overrides: tuple[str, ...]) -> Workload:
    write_split(scratch / "tiny" / "train", *reviews(TINY_ROWS, seed=1))
    write_split(scratch / "tiny" / "dev", *reviews(BATCH, seed=2))
    experiment = load("{}", [*overrides, f"preprocessing.max_length={TINY_LENGTH}"])
    return Workload(experiment, scratch / "tiny", tiny_encoder(scratch / "encoder"))
