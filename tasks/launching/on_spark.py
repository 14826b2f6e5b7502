"""A training's ranks on a Spark cluster: Horovod starts one in each task of a Spark job.

An executor needs what a rank does: this environment and the project's code, and under the same paths as here the
artifact store, to write, and the cache.
"""

from __future__ import annotations

import os
import sys

from include.experiment import Experiment
from include.stages import Transient
from tasks.launching.rank import run_rank
from tasks.spark import session


def run_on_spark(folder: str, ranks: int, experiment: Experiment) -> None:
    """Run the ranks. Raises RuntimeError, which names the first that failed, as Horovod does for local ones.

    Raises Transient when the cluster has no room for all of them.
    """
    import horovod.spark
    from horovod.runner.common.util.timeout import TimeoutException

    with session(experiment, "ranks") as spark:
        passed = ("HOROVOD_", "HF_", "PYTHONPATH", "GOMP_", "OMP_")
        told = {name: value for name, value in os.environ.items() if name.startswith(passed)}
        told["OMP_NUM_THREADS"] = str(spark.conf.get("spark.task.cpus", "1"))  # a task's cores are its rank's
        try:
            horovod.spark.run(
                run_rank, (folder,), num_proc=ranks, use_gloo=True, env=told, stdout=sys.stdout, stderr=sys.stderr
            )
        except TimeoutException as error:
            raise Transient(
                f"{experiment.runtime.spark_master} did not run {ranks} ranks at once in time: "
                "give it more cores, or lower training.ranks"
            ) from error
