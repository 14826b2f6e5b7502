"""A champion that changes while requests come at half of the capacity.

The alias of a registry goes to and fro between two packages. Requests have several texts, for which the two models have
clearly different answers. An answer is mixed if a row is nearer to the answer of the other model than to that of the
version that it names. A swap lasts from the move of the alias until the version answers, and a moment longer.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.serving.http_load import Reply, Target
from benchmarks.serving.servers import OURS, Server, service
from benchmarks.serving.setting import Setting, answered, cell, milliseconds, per_second
from benchmarks.tables import table
from include.artifacts import MANIFEST, ArtifactStore, sha256
from tasks.inference.packaged_model import Array, PackagedModel
from tasks.serving.served_model import open_model
from tasks.tracking import server as tracking
from tasks.tracking.champions import Champions
from tasks.tracking.loading import PACKAGE, PACKAGE_SHA256
from tasks.tracking.registry import Version

MODEL = "spark-bert-movie-reviews"
ROWS = 4  # texts per request
CLEAR = 0.1  # by how much two probabilities of a text differ, so that no rounding makes one the other
LONG = 3600  # seconds: the load ends with the swaps
PAUSE, AFTER = 1.0, 0.5  # seconds between two swaps, and those after a swap that count as part of it
HEADER = (
    "requests", "sent", "failed", "mixed versions", "p50, ms", "p99, ms", "p99 x", "longest, ms", "memory after, MB"
)  # fmt: skip


@dataclass(frozen=True)
class Registered:
    """A registered version, and the probability of the first label for each text that is sent."""

    version: Version
    chances: Array


def swaps(setting: Setting, other: Path, count: int) -> str:
    """Measure the service with so many swaps between the package of the setting and another one."""
    home = setting.scratch / "home"
    champions = Champions(tracking.Server(home), MODEL)
    chances = [_chances(package, setting) for package in (setting.package, other)]
    clear = np.flatnonzero(np.abs(chances[0] - chances[1]) > CLEAR)
    clear = clear[: len(clear) // ROWS * ROWS]
    models = [
        Registered(_register(champions, home, package), known[clear])
        for package, known in zip((setting.package, other), chances, strict=True)
    ]
    requests = [[setting.texts[place] for place in places] for places in clear.reshape(-1, ROWS)]
    champions.make_champion(models[0].version)
    with Server(partial(service, overrides=["serving.poll=0.5"], home=home), setting.scratch / "swaps.log") as server:
        server.wait_for("/v2/health/ready")
        target = Target.of(server.port, OURS.path, [json.dumps({"sentences": texts}).encode() for texts in requests])
        setting.closed(target)  # the first requests take longer
        rate = per_second(setting.closed(target)) / 2
        without = setting.generator.open(target, rate, setting.seconds)
        before = server.megabytes()
        sending = setting.generator.start(target, rate, LONG)
        windows = [_swap(champions, server, models[(number + 1) % 2].version) for number in range(count)]
        setting.generator.stop()
        replies = sending.result()
        during = [reply for reply in replies if any(first <= reply.intended <= last for first, last in windows)]
        between = [reply for reply in replies if not any(first <= reply.intended <= last for first, last in windows)]
        seconds = statistics.median(last - first - AFTER for first, last in windows)
        rows = {
            "without swaps": (without, before),
            f"during {count} swaps of {seconds:.1f} s": (during, server.megabytes()),
            "between them": (between, server.megabytes()),
        }
        reference = milliseconds(answered(without), 99)
        return table(HEADER, [_row(name, *found, reference, models) for name, found in rows.items()])


def _chances(package: Path, setting: Setting) -> Array:
    """The probability of the first label for all texts, [texts]."""
    model = PackagedModel(package, open_model(package, "", "", 0).form)
    return model.probabilities(model.logits([list(setting.texts)]))[:, 0]


def _register(champions: Champions, home: Path, package: Path) -> Version:
    """Copy a package into the home, and register it."""
    key = sha256(package / MANIFEST)[:16]  # packages of models that nobody has trained have the same key
    copy = shutil.copytree(package, ArtifactStore(home).path("package", key))
    experiment = champions.client.create_experiment(key, str(home / "mlflow/artifacts"))
    tags = {PACKAGE: key, PACKAGE_SHA256: sha256(copy / MANIFEST)}
    return champions.add(champions.client.create_run(experiment).info.run_id, copy, tags)


def _swap(champions: Champions, server: Server, version: Version) -> tuple[float, float]:
    """Make a version the champion, and return when that began and ended."""
    time.sleep(PAUSE)
    began = time.perf_counter()
    champions.make_champion(version)
    server.wait_for(f"/v2/models/{MODEL}/versions/{version.number}/ready")
    time.sleep(AFTER)
    return began, time.perf_counter()


def _row(
    name: str, replies: Sequence[Reply], megabytes: float, reference: float | None, models: Sequence[Registered]
) -> list[str]:
    good = answered(replies)
    p99 = milliseconds(good, 99)
    return [
        name,
        str(len(replies)),
        str(len(replies) - len(good)),
        str(sum(_is_mixed(reply, models) for reply in good)),
        *(cell(milliseconds(good, percent)) for percent in (50, 99)),
        cell(p99 / reference if p99 and reference else None, 2),
        cell(milliseconds(good, 100)),
        cell(megabytes, 0),
    ]


def _is_mixed(reply: Reply, models: Sequence[Registered]) -> bool:
    """Whether a row is nearer to the answer of another model than to that of the version that the answer names."""
    answer = json.loads(reply.body)
    found = np.array([next(iter(row["probabilities"].values())) for row in answer["results"]])
    rows = slice(reply.row * ROWS, (reply.row + 1) * ROWS)
    distances = np.abs(np.array([model.chances[rows] for model in models]) - found)
    named = [model.version.number for model in models].index(answer["model"]["version"])
    return bool((distances[named] > distances.min(axis=0)).any())
