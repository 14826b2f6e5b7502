"""transformers' Trainer on the rows of the engine: `python -m benchmarks.hf_trainer FOLDER` (see TRAINER)."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from include.artifacts import write_json
from tasks.launching.launch import ROOT
from tasks.launching.rank import JOB
from tasks.training.job import Job

TRAINER, RESULT = "trainer.json", "trainer-result.json"
#: Trainer's public switches that make it fast, beside dynamic padding; it needs no logs, scores or checkpoints.
BEST: dict[str, Any] = {"train_sampling_strategy": "group_by_length", "optim": "adamw_torch_fused"}


@dataclass(frozen=True)
class Run:
    """What Trainer does.

    Attributes:
        best: with its best public switches, else as run_glue uses it: fp32, each row padded to max_length.
        warmup: steps before the measured ones, by the same model, as our engine has them.
        steps: that are measured; 0: as many as the job's epochs have.
        score: whether to predict the dev split afterwards.
    """

    best: bool
    warmup: int
    steps: int
    score: bool = False


def run_trainer(job: Job, run: Run, threads: int) -> dict[str, float]:
    """Train in a process of its own: rows and seconds of the measured steps, and accuracy on dev where it is asked for.

    Raises RuntimeError with the process's output when it fails.
    """
    job.write(job.output / JOB)
    write_json(job.output / TRAINER, dataclasses.asdict(run))
    command = [sys.executable, "-m", "benchmarks.hf_trainer", str(job.output)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Trainer failed:\n{done.stdout}{done.stderr}")
    result: dict[str, float] = json.loads((job.output / RESULT).read_text(encoding="utf-8"))
    return result


def main(folder: Path) -> None:
    """Do what trainer.json says."""
    job = Job.read(folder / JOB)
    run = Run(**json.loads((folder / TRAINER).read_text(encoding="utf-8")))
    trainer, seconds = _train(job, run)
    steps = trainer.state.global_step - run.warmup
    result = {"rows": steps * job.training.batch_size, "seconds": seconds}
    if run.score:
        result["accuracy"] = _accuracy(trainer, job, run)
    write_json(folder / RESULT, result)


def _train(job: Job, run: Run) -> tuple[Any, float]:
    """A Trainer that has trained, and the seconds from the end of the warm-up to its last update."""
    from transformers import AutoModelForSequenceClassification, Trainer, set_seed

    training = job.training
    set_seed(training.seed)
    model = AutoModelForSequenceClassification.from_pretrained(job.encoder, num_labels=job.experiment.task.outputs)
    clock = _clock(run.warmup)
    trainer = Trainer(
        model=model,
        args=arguments(
            job,
            job.output,
            num_train_epochs=training.epochs,
            max_steps=run.warmup + run.steps or -1,
            warmup_steps=training.warmup,
            **(BEST | {"bf16": training.precision != "fp32" and computes_in_bf16()} if run.best else {}),
        ),
        train_dataset=rows(job, "train", run),
        data_collator=collator(job, run),
        callbacks=[clock],
    )
    trainer.train()
    return trainer, clock.ended - clock.began


def arguments(job: Job, folder: Path, **more: Any) -> Any:
    """Return the TrainingArguments of a job, without logs and checkpoints."""
    import torch
    from transformers import TrainingArguments

    training = job.training
    return TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        max_grad_norm=training.clip_norm,
        seed=training.seed,
        use_cpu=not torch.cuda.is_available(),
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **more,
    )


def computes_in_bf16() -> bool:
    import torch

    from tasks.training import precision

    return precision.computes_in_bf16(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def rows(job: Job, split: str, run: Run) -> Any:
    """The split's token ids as a data set of the library datasets, padded to max_length for run_glue's way."""
    import datasets
    from transformers import AutoTokenizer

    from tasks.encoder.batching import TokenTable

    table, tokenizer = TokenTable.open(job.data / split), AutoTokenizer.from_pretrained(job.encoder)
    columns: Any = {"input_ids": [table.ids(row).astype("int64") for row in range(len(table))]}
    if not run.best:
        columns = tokenizer.pad(columns, padding="max_length", max_length=job.experiment.preprocessing.max_length)
    return datasets.Dataset.from_dict({**columns, "labels": table.labels, "length": table.lengths})


def collator(job: Job, run: Run) -> Any:
    from transformers import AutoTokenizer, DataCollatorWithPadding, default_data_collator

    return DataCollatorWithPadding(AutoTokenizer.from_pretrained(job.encoder)) if run.best else default_data_collator


def _clock(warmup: int) -> Any:
    """A callback that knows when the first step after the warm-up began, and when training ended."""
    import torch
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        began = ended = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.ended = time.perf_counter()
            if state.global_step == warmup:
                self._finish()
                self.began = self.ended

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self._finish()

        def _finish(self) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
                self.ended = time.perf_counter()

    return Clock()


def _accuracy(trainer: Any, job: Job, run: Run) -> float:
    predicted = trainer.predict(rows(job, "dev", run))
    return float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
