"""The Spark session of a stage: quiet, on this machine by default, gone when the stage ends.

Executors on other machines need the same Python packages, and the artifact store under the same path; the
project's own code and the tokenizer are shipped to them.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from include.experiment import Experiment
from include.scratch import scratch_folder
from include.stages import BadInput, StageError, Transient

log = logging.getLogger(__name__)

JAVA = 17  # the oldest that Spark 4 runs on
ROOT = Path(__file__).absolute().parent.parent
ROWS_IN_PARTITION = 5000
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
#: A stage's JVM lives for seconds: compiling quickly, not well, halves the processor time of preprocess.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LOGGING = f"-Dlog4j2.configurationFile={(ROOT / 'tasks' / 'log4j2.properties').as_uri()}"

_COMMON = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.executorEnv.TOKENIZERS_PARALLELISM": "false",  # a Python worker is one of many on its machine
    "spark.executorEnv.OMP_NUM_THREADS": "1",
}
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",  # also the executors': a local master runs them in the driver's JVM
    "spark.sql.shuffle.partitions": "4",
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}


@contextmanager
def session(experiment: Experiment, name: str) -> Iterator[SparkSession]:
    """A session on `runtime.spark_master`, whose JVM and scratch files are gone afterwards.

    Inside another session of this process it is that one, left running.
    Raises BadInput where Java is missing or too old, Transient when a Spark job fails.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    _check_java()
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it raises what it logs, also after the JVM has ended
    with scratch_folder(Path(tempfile.gettempdir()), "spark-bert") as scratch:
        try:
            yield _start(experiment.runtime.spark_master, name, scratch)
        except Exception as error:
            stopped = _stopped(error)
            if stopped is None and not isinstance(error, SPARK_ERRORS):
                raise
            raise stopped or _explain(error) from error
        finally:
            _stop()


def is_local(spark: SparkSession) -> bool:
    """Whether the executors are threads of this machine, and read its files in place."""
    return str(spark.sparkContext.master).startswith("local")


def partitions(rows: int) -> int:
    """How many partitions the papers cut so many rows into: one for 5,000, four at least."""
    return max(4, rows // ROWS_IN_PARTITION)


def ship(spark: SparkSession, file: Path) -> str:
    """Make a file readable on the executors; what they give to `shipped` to find it."""
    if is_local(spark):
        return str(file.absolute())
    spark.sparkContext.addFile(str(file.absolute()))
    return file.name


def shipped(name: str) -> Path:
    """On an executor: where the file lies that the driver gave to `ship`."""
    return Path(name) if Path(name).is_absolute() else Path(SparkFiles.get(name))


def _start(master: str, name: str, scratch: Path) -> SparkSession:
    settings = _COMMON | {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f"{_SHORT_LIVED} -Djava.io.tmpdir={scratch} {_LOGGING}",
    }
    if master.startswith("local"):
        settings |= _LOCAL
        os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    os.environ["PYSPARK_PIN_THREAD"] = "false"  # an interrupted call then does not hold up the next one
    conf = SparkConf().setMaster(master).setAppName(f"spark-bert {name}").setAll(list(settings.items()))
    on_interrupt = signal.getsignal(signal.SIGINT)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    signal.signal(signal.SIGINT, on_interrupt)  # Spark's own handler talks to the JVM in the middle of a call
    if not is_local(spark):
        spark.sparkContext.addPyFile(str(_code(scratch)))
    return spark


def _stop() -> None:
    """End the JVM by closing its standard input; on its way out it stops the jobs and removes its files.

    Nothing is said over the connection, which a Ctrl-C or a kill of the process group leaves in an unknown state.
    """
    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # the JVM stops its own half
        context.stop()
    if gateway is None:
        return
    gateway.close()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(timeout=20)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
    SparkContext._gateway = SparkContext._jvm = None  # so that a later session starts a JVM of its own


def _code(scratch: Path) -> Path:
    """A zip of the packages that executors on other machines import."""
    path = scratch / "spark_bert.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("include", "tasks"):
            for file in sorted((ROOT / package).rglob("*.py")):
                archive.write(file, file.relative_to(ROOT))
    return path


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    remedy = f"install a Java runtime, {JAVA} or newer (Debian: apt-get install openjdk-{JAVA}-jre-headless)"
    if shutil.which(java) is None:
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java on the PATH"
        raise BadInput(f"Spark needs Java, and {where}: {remedy}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None or int(version[1]) < JAVA:
        raise BadInput(f"Spark needs Java {JAVA} or newer, and {java} says {said.splitlines()[:1]}: {remedy}")


def _stopped(error: BaseException | None) -> BaseException | None:
    """The Ctrl-C or SIGTERM in whose wake the error came: py4j fails when it is interrupted or the JVM went first."""
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__context__
    return error


def _explain(error: Exception) -> StageError:
    """Spark's error in one line; its whole trace goes to the log."""
    text = str(error)
    log.error("%s", text)
    refused = re.search(r"include\.stages\.BadInput: (.*)", text)
    if refused:
        return BadInput(refused[1])
    if os.strerror(errno.ENOSPC) in text:
        return Transient("no space left for Spark's files: free some and run the stage again; nothing was kept")
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]+(Error|Exception): ", line)]
    return Transient(f"a Spark job failed: {lines[-1] if lines else text[:200]}; nothing was kept")
