"""What executors without a folder of the driver do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.tasks.cluster import ROOT, Cluster

STAGED = """
import json, os, sys, time
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
            time.sleep(0.5)
        yield chunk

with session(load("movies", [f"runtime.spark_master={master}"]), "test") as spark, staging(spark) as staged:
    shared, out = staged.share(here / "in"), staged.address_of(here / "out")
    spark.range(0, 12, 1, 12).mapInArrow(work, "id long").collect()
    staged.collect(here / "out")
"""


def test_files_reach_executors_and_come_back_though_one_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("shared")
    arguments = [str(cluster.driver_path(tmp_path)), str(ROOT), cluster.master]
    with cluster.start([sys.executable, "-c", STAGED, *arguments], tmp_path) as driver:
        cluster.wait_for_request("PUT .*part-")
        before = len(cluster.requests())
        cluster.kill_executor()
        errors = driver.communicate()[1]
    assert driver.returncode == 0, errors
    assert "Lost executor" in errors
    cluster.wait_for_request("PUT .*part-", before)
    parts = {file.name: json.loads(file.read_text()) for file in (tmp_path / "out").iterdir()}
    checkout = [] if cluster.machines.init else [str(ROOT / "tasks")]
    assert parts == {f"part-{number}": [number, "shared", checkout] for number in range(12)}
