"""The ranks of a training on a Spark cluster: Horovod starts one rank per task of a Spark job.

An executor needs this environment and the project's code and, under the same paths as here, the cache and the
artifact store, which it writes.

What Horovod's services on Spark take from one another has to be signed with a key that Spark hands to the tasks. Only
the server through which ranks find one another asks for none by itself.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from unittest import mock

from include.experiment import Experiment
from include.logs import VARIABLE
from include.stages import Transient
from tasks.launching.local import Lost
from tasks.launching.rank import run_rank
from tasks.launching.rendezvous import guarded
from tasks.spark import session


def run_on_spark(folder: str, ranks: int, experiment: Experiment) -> Lost | None:
    """Run the ranks in Spark's executors; return the first one that failed, or None.

    Raises:
        Transient: the cluster cannot run all ranks at the same time.
    """
    import horovod.spark
    from horovod.runner import gloo_run
    from horovod.runner.common.util.timeout import TimeoutException

    secret = secrets.token_urlsafe()
    with session(experiment, "ranks") as spark, mock.patch.object(gloo_run, "RendezvousServer", guarded(secret)):
        forwarded = ("HOROVOD_", "HF_", "PYTHONPATH", "GOMP_", "OMP_", VARIABLE)
        environment = {name: value for name, value in os.environ.items() if name.startswith(forwarded)}
        environment["OMP_NUM_THREADS"] = str(spark.conf.get("spark.task.cpus", "1"))  # a rank has the cores of its task
        try:
            horovod.spark.run(
                run_rank,
                (folder, secret),
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
        except RuntimeError as error:
            first = re.search(r"Process name: (\d+)\s+Exit code: (-?\d+)", str(error))
            if first is None:
                raise
            return Lost(int(first[1]), int(first[2]))
    return None
