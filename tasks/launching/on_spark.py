"""The ranks of a training on a Spark cluster: Horovod starts one rank per task of a Spark job.

An executor needs this environment and the project's code and, under the same paths as here, the cache and the
artifact store, which it writes.
"""

from __future__ import annotations

import os
import sys

from include.experiment import Experiment
from include.logs import VARIABLE
from include.stages import Transient
from tasks.launching.rank import run_rank
from tasks.spark import session


def run_on_spark(folder: str, ranks: int, experiment: Experiment) -> None:
    """Run the ranks in Spark's executors.

    Raises:
        RuntimeError: a rank failed; the message names the first one, as Horovod's does for local ranks.
        Transient: the cluster cannot run all ranks at the same time.
    """
    import horovod.spark
    from horovod.runner.common.util.timeout import TimeoutException

    with session(experiment, "ranks") as spark:
        forwarded = ("HOROVOD_", "HF_", "PYTHONPATH", "GOMP_", "OMP_", VARIABLE)
        environment = {name: value for name, value in os.environ.items() if name.startswith(forwarded)}
        environment["OMP_NUM_THREADS"] = str(spark.conf.get("spark.task.cpus", "1"))  # a rank has the cores of its task
        try:
            horovod.spark.run(
                run_rank,
                (folder,),
                num_proc=ranks,
                use_gloo=True,
                env=environment,
                stdout=sys.stdout,
                stderr=sys.stderr,
            )
        except TimeoutException as error:
            raise Transient(
                f"{experiment.runtime.spark_master} did not run {ranks} ranks at once in time: "
                "give it more cores, or lower training.ranks"
            ) from error
