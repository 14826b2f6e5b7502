"""How many ranks a training gets: `training.ranks`, or with `auto` one per GPU, or the fastest layout on the CPUs.

A layout is a number of ranks, among which the CPUs are divided. Which one is the fastest differs between processors and
encoders, so a few steps of the real training are timed with the few layouts that are predicted to be the fastest. That
takes at most 5 % of the training, and the cache folder keeps the speeds for the next one like it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from include import tracing
from include.artifacts import revision, write_json
from include.stages import BadInput, StageError
from tasks.context import cache_folder
from tasks.launching.rank import SPEED, STOP
from tasks.launching.tuning import threads
from tasks.training.job import Job, checkpoints

log = logging.getLogger(__name__)

#: Trains as a job says on a number of ranks in processes of their own, which use a folder. Raises if that fails.
Run = Callable[[Job, Path, int], None]
TIMED = (8, 30)  # steps that are timed, at least and at most; in between, 2 % of the training
SHARE = 0.05  # of the training that timing may take
LEAST = 400  # steps of a training of which two layouts can be timed within that
LONG = 120.0  # seconds of training from which on it is worth it
MEASURED = 3  # layouts that are timed, the ones that are predicted to be the fastest
GAIN = 1.05  # by which more ranks must be faster, because they need more memory
MANY = 16  # CPUs from which on one rank with all threads is not what is tried first, because it is the slowest
#: Shares of one thread's step with MiniLM and 32 rows of SST-2: what does not depend on the rows, what more threads do
#: not speed up, a sum of the gradients by two ranks (docs/RESULTS.md), and what each rank adds to it: in the table of
#: docs/SCALING.md, MiniLM's step on 64 nodes is 0.06 s longer than on 8 at 100 Gbit/s.
FIXED, SERIAL, SUM, LATENCY = 0.33, 0.46, 0.07, 0.006
PYTHON, COPIES = 600e6, 6  # bytes of a rank: of Python and its packages, and per byte of the weights
#: The fields of the section training that change how long a step takes.
_FIELDS = {
    "batch_size", "accumulation", "precision", "fused_layers", "compiled_layers", "sparse_embeddings",
    "activation_checkpointing", "freeze_layers", "lora_rank", "lora_targets", "average_decay",
}  # fmt: skip


def with_ranks(job: Job, gpus: int, folder: Path, run: Run) -> Job:
    """Return the job with a number for training.ranks, and with the reason if several layouts were considered.

    The folder is one for temporary files, in which STOP appears when the training is to stop.
    """
    ranks, reason = job.training.ranks, ""
    if ranks == "auto":
        whole = job.experiment.parallel.ranks == 1
        ranks, reason = _fastest(job, folder, run) if whole and not gpus else (_one_for_each(gpus, job), "")
        if reason:
            log.info("training.ranks: %d (%s)", ranks, reason)
    compression = job.experiment.communication.compression
    if ranks == 1 and compression != "none":
        log.warning(
            "one rank exchanges nothing, so communication.compression %s has no effect: "
            "write training.ranks: 2 or more",
            compression,
        )
    return replace(_with(job, ranks), layout=reason)


def advise(job: Job) -> None:
    """Say what might make the next training faster, if this one was long and could not have several ranks."""
    if job.training.ranks != "auto" or find_spec("horovod") is not None:
        return
    done = json.loads((job.output / "training.json").read_text(encoding="utf-8"))
    if done["device"] == "cpu" and done["threads"] > 1 and done["seconds"] >= LONG:
        log.info("one rank has trained for %.0f s; with Horovod (`make setup`), more may be faster", done["seconds"])


def _one_for_each(gpus: int, job: Job) -> int:
    """Return a rank per GPU, at least one. It divides batches of a fixed size; a divided model is there as a whole."""
    fixed, size = job.batching.kind in ("length", "static"), job.training.batch_size
    copy, parts = job.experiment.parallel.ranks, job.experiment.parallel.shard  # of the rows of each copy
    fitting = [n for n in range(copy, gpus + 1, copy) if not fixed or size % (n // copy * parts) == 0]
    ranks = max(fitting, default=copy)
    if 0 < gpus < copy:
        raise BadInput(
            f"parallel.tensor, pipeline and shard divide a model among {copy} ranks, which need a GPU each, but this "
            f"machine has {gpus}: write values whose product is at most {gpus}"
        )
    if ranks < gpus:
        why = f"training.batch_size {size} has no larger divisor"
        if copy > 1:
            why = f"more ranks are no multiple of {copy}, or too many for batches of equal size"
        log.warning("%d of %d GPUs are used: %s", ranks, gpus, why)
    return ranks


def _fastest(job: Job, folder: Path, run: Run) -> tuple[int, str]:
    """Return the number of ranks on the CPUs, and why it was chosen; "" if there was no choice."""
    possible = fitting(job)
    if len(possible) == 1 or find_spec("horovod") is None:
        return 1, ""
    if (ranks := _checkpointed(job)) in possible:
        return ranks, "as many as have written the checkpoint"
    from tasks.training.sampler import planned_steps, training_rows

    steps = planned_steps(job)
    if steps < LEAST:
        return 1, ""
    lengths = training_rows(job).lengths
    first, file = candidates(possible), _speeds_file(job, float(lengths.mean()))
    speeds = {ranks: speed for ranks, speed in recall(file).items() if ranks in possible}
    rows = len(lengths) * job.training.epochs
    if speeds and (set(first) <= speeds.keys() or rows / max(speeds.values()) < LONG):
        return _pick(speeds), _told(speeds, "measured before")
    timed = replace(job, timed_steps=min(max(TIMED[0], steps // 50), TIMED[1]))
    started = time.monotonic()
    with tracing.span("layouts"):
        speeds = _measure(timed, first, speeds, rows, folder, run)
    remember(file, {ranks: speed for ranks, speed in speeds.items() if speed})
    return _pick(speeds), _told(speeds, f"measured in {time.monotonic() - started:.0f} s")


def fitting(job: Job) -> list[int]:
    """Return the numbers of ranks that divide the CPUs and batches of a fixed size, and that memory suffices for."""
    cores, size = threads(ranks=1), job.training.batch_size
    fixed = job.batching.kind in ("length", "static")
    weights = sum(file.stat().st_size for file in job.encoder.glob("*.safetensors"))
    most = _free_memory() / (PYTHON + COPIES * weights)
    return [
        ranks
        for ranks in range(1, cores + 1)
        if cores % ranks == 0 and (not fixed or size % ranks == 0) and (ranks == 1 or ranks <= most)
    ]


def _free_memory() -> float:
    """Return the bytes of memory that this machine, or at most those that this container, has for ranks."""
    import psutil

    free, limit = psutil.virtual_memory().available, Path("/sys/fs/cgroup/memory.max")
    with suppress(OSError, ValueError):  # it is "max" without a limit
        free = min(free, int(limit.read_text(encoding="ascii")))
    return 0.9 * float(free)


def candidates(possible: list[int]) -> list[int]:
    """Return the numbers of ranks to measure, in this order: those whose steps are predicted to take the least time."""
    cores = threads(ranks=1)

    def seconds(ranks: int) -> float:
        """Return the time of a step. As in docs/SCALING.md, a ring of N ranks sends 2 (N - 1) / N times the sum."""
        alone = (FIXED + (1 - FIXED) / ranks) * (SERIAL + (1 - SERIAL) * ranks / cores)
        return alone + SUM * 2 * (ranks - 1) / ranks + LATENCY * (ranks - 1)

    return sorted(possible, key=lambda ranks: (cores < MANY and ranks > 1, seconds(ranks)))[:MEASURED]


def _checkpointed(job: Job) -> int:
    """Return the number of ranks that wrote the newest checkpoint, or 0."""
    from tasks.training.checkpoint import VALUES

    try:
        *_, newest = checkpoints(job.folder).values()
        return sum(map(int, json.loads((newest / VALUES).read_text(encoding="utf-8"))["hosts"]))
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is damaged and will be set aside
        return 0


def _measure(
    job: Job, layouts: list[int], known: dict[int, float], rows: float, folder: Path, run: Run
) -> dict[int, float]:
    """Return the rows per second of as many of the layouts as the share of the training allows; 0 of one that fails.

    Those that are known, which shorter trainings have measured, are not measured again.
    """
    speeds, started = dict(known), time.monotonic()
    for count, ranks in enumerate(ranks for ranks in layouts if ranks not in known):
        if fastest := max(speeds.values(), default=0):
            training = rows / fastest
            # The next one takes as long as each of those before.
            expected = (time.monotonic() - started) * (count + 1) / max(1, count)
            if training < LONG or expected > SHARE * training:
                break
        speeds[ranks] = _speed(_with(job, ranks), folder, run)
        if (folder / STOP).exists():
            break
    return speeds


def _speed(job: Job, folder: Path, run: Run) -> float:
    """Return the rows per second of some steps, or 0 if the ranks fail."""
    place = folder / f"layout-{job.ranks}"
    output = place / "output"
    output.mkdir(parents=True)
    (place / STOP).symlink_to(folder / STOP)
    try:
        run(replace(job, output=output, checkpoints=None, terminal=False), place, job.ranks)
        return float(json.loads((place / SPEED).read_text(encoding="utf-8")))
    except (StageError, RuntimeError, OSError) as error:
        if not (folder / STOP).exists():
            log.warning("%s is not considered: %s", _name(job.ranks), error)
        return 0.0
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _pick(speeds: dict[int, float]) -> int:
    fastest = max(speeds.values())
    return min(ranks for ranks, speed in speeds.items() if speed * GAIN >= fastest) if fastest else 1


def _told(speeds: dict[int, float], measured: str) -> str:
    of_each = {ranks: f"{speed:.0f} rows/s" if speed else "failed" for ranks, speed in sorted(speeds.items())}
    told = ", ".join(f"{_name(ranks)}: {of_one}" for ranks, of_one in of_each.items())
    if len(speeds) > 1:
        return f"{told}, {measured}"
    predicted = ", predicted to be the fastest" if threads(ranks=1) >= MANY else ""
    return f"{told}{predicted}; the training is too short to measure other layouts"


def _name(ranks: int) -> str:
    return f"{ranks} x {threads(ranks)}"


def _with(job: Job, ranks: int) -> Job:
    training = job.training.model_copy(update={"ranks": ranks})
    return replace(job, experiment=job.experiment.model_copy(update={"training": training}))


def _speeds_file(job: Job, tokens: float) -> Path:
    """Return the file in the cache folder with the speeds of trainings like this one, whose rows have this mean length.

    The length counts to the nearest power of two.
    """
    encoder = json.loads((job.encoder / "config.json").read_text(encoding="utf-8"))
    encoder.pop("_name_or_path", None)
    experiment = job.experiment
    like = {
        "processor": processor(), "cpus": threads(ranks=1), "torch": version("torch"), "revision": revision(),
        "encoder": encoder, "objective": job.objective, "tokens": round(math.log2(tokens)),
        "training": experiment.training.model_dump(mode="json", include=_FIELDS),
        **experiment.model_dump(mode="json", include={"batching", "communication"}),
    }  # fmt: skip
    name = hashlib.sha256(json.dumps(like, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / "layouts" / f"{name}.json"


def processor() -> str:
    """Return the name of the processor; "" if the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return ""


def recall(file: Path) -> dict[int, float]:
    """Return the rows per second by the number of ranks; nothing if the file is absent or damaged."""
    try:
        speeds = {int(ranks): float(speed) for ranks, speed in json.loads(file.read_text(encoding="utf-8")).items()}
        return speeds if all(speed > 0 for speed in speeds.values()) else {}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def remember(file: Path, speeds: dict[int, float]) -> None:
    """Write the rows per second by the number of ranks, if there are any, unless the cache folder is read-only."""
    if not speeds:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, speeds)
    except OSError as error:
        log.info("the speeds of layouts are not kept, and measured again next time: %s", error)
