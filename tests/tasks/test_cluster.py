"""What executors without a folder of the driver do."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pyarrow

from tests.tasks.cluster import Cluster
from tests.tasks.machines import ROOT

STAGED = """
import json, sys
from pathlib import Path
from include.named_experiments import load
from tasks.spark import session
from tasks.staging import below, fetched, staging, whole_file

here, checkout, master = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def work(chunks):
    for chunk in chunks:
        for number in chunk.column(0).to_pylist():
            with whole_file(below(out, f"part-{number}")) as attempt:
                seen = [str(path) for path in (here / "in", Path(checkout, "tasks")) if path.exists()]
                attempt.write_text(json.dumps([number, fetched(shared).read_text(), seen]))
        yield chunk

with session(load("movies", [f"runtime.spark_master={master}"]), "test") as spark, staging(spark) as staged:
    shared, out = staged.share(here / "in"), staged.address_of(here / "out")
    spark.range(0, 12, 1, 12).mapInArrow(work, "id long").collect()
    staged.collect(here / "out")
"""


def test_files_reach_executors_and_come_back_though_one_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("shared")
    driver = cluster.start([sys.executable, "-c", STAGED, str(tmp_path), str(ROOT), cluster.master])
    cluster.kill_executor("part-")
    errors = driver.communicate()[1]
    assert driver.returncode == 0, errors
    assert "Lost executor" in errors
    parts = {file.name: json.loads(file.read_text()) for file in (tmp_path / "out").iterdir()}
    seen = [] if cluster.machines.init else [str(tmp_path / "in"), str(ROOT / "tasks")]
    assert parts == {f"part-{number}": [number, "shared", seen] for number in range(12)}


#: Runs one job with each Python, and one that reads from a store of the driver's only; prints what is said of each.
REFUSED = """
import sys
from include.named_experiments import load
from tasks.spark import _explain, session
from tasks.staging import opened

master, *pythons = sys.argv[1:]
with session(load("movies", [f"runtime.spark_master={master}"]), "test") as spark:
    def work(chunks):
        import pydantic
        opened("s3://user:secret@bucket/file?endpoint_override=127.0.0.1:1&scheme=http")
        yield from chunks

    for spark.sparkContext.pythonExec in [*pythons, sys.executable]:
        try:
            spark.range(1).mapInArrow(work, "id long").collect()
        except Exception as error:
            said = _explain(error)
            print(type(said).__name__, said)
"""

#: What makes Python take itself for another one.
PRETENDED = """
import sys
class Version(tuple):
    major, minor, micro = 3, 99, 0
sys.version_info = Version([3, 99, 0, "final", 0])
"""


def test_what_is_wrong_with_executors_is_said(cluster: Cluster, tmp_path: Path) -> None:
    """Another Python, another version of a package, none of it, no Python, and a store that they do not reach."""
    image, packages, base = (
        cluster.machines.folder / "image",
        Path(pyarrow.__file__).parents[1],
        Path(sys.executable).resolve(),
    )
    (image / "python").mkdir()
    (image / "python" / "sitecustomize.py").write_text(PRETENDED)
    (image / "version" / "tokenizers-0.0.1.dist-info").mkdir(parents=True)
    (image / "version" / "tokenizers-0.0.1.dist-info" / "METADATA").write_text("Name: tokenizers\nVersion: 0.0.1\n")
    for lacking in ("pydantic", "tokenizers"):
        (image / lacking).mkdir()
        for package in packages.iterdir():
            if not package.name.startswith(lacking):
                (image / lacking / package.name).symlink_to(package)
    pythons = {
        "python": sys.executable,
        "version": sys.executable,
        "pydantic": f"{base} -S",
        "tokenizers": f"{base} -S",
    }
    for name, python in pythons.items():
        file = image / f"{name}.sh"
        file.write_text(f'#!/bin/sh\nPYTHONPATH={image / name}:$PYTHONPATH exec {python} "$@"\n')
        file.chmod(0o755)
    (tmp_path / "spark-defaults.conf").write_text("spark.task.maxFailures 1\n")  # as an administrator may set it
    command = [sys.executable, "-c", REFUSED, cluster.master, *(f"{image / name}.sh" for name in pythons), "/no/python"]
    driver = cluster.start(command, SPARK_CONF_DIR=str(tmp_path))
    output, errors = driver.communicate()
    assert driver.returncode == 0, errors
    here, host = "{}.{}".format(*sys.version_info), "(one|two)" if cluster.machines.init else os.uname().nodename
    said = dict(zip([*pythons, "none", "store"], output.splitlines(), strict=True))
    assert said["python"].startswith(f"BadInput an executor has Python 3.99, but the driver has {here}: give executors")
    for name, had in (("version", r"tokenizers 0\.0\.1"), ("tokenizers", "no tokenizers")):
        assert re.match(f"BadInput the executor on {host} has {had}, but the driver has tokenizers", said[name])
    assert said["pydantic"].startswith(
        "BadInput an executor lacks the Python package pydantic: give executors the image"
    )
    assert said["none"].startswith("BadInput an executor cannot start Python, /no/python (No such file or directory): ")
    assert re.match(rf"Transient {host} cannot use s3://bucket/file \(", said["store"])
    assert "let the machines of the Spark cluster connect to the store" in said["store"]
