"""The Spark session of a stage, of pyspark's own Spark. By default it runs on this machine, and ends with the stage.

Executors on other machines need the same Python and packages as the driver (executors.py), get its code, and exchange
files with it (staging.py).
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from include import tracing
from include.experiment import Experiment
from include.scratch import scratch_folder
from include.stages import BadInput, StageError, Transient
from tasks import executors
from tasks.staging import Staging, is_local

T = TypeVar("T")
log = logging.getLogger(__name__)

JAVA = 17  # the oldest version that Spark 4 supports
ROOT = Path(__file__).absolute().parent.parent
#: The archive with the project's code, in the folder in which executors work.
CODE = "spark_bert.zip"
_SUFFIXES = (".py", ".cpp", ".h")  # the kernels of a machine are those whose source is here
#: The columns of `answer`.
ANSWER = "piece long, answer binary"
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)
#: The description of jobs that do nothing and are no spans.
EMPTY = "keep the Python workers"
#: A stream has jobs without end. This many, the last ones, become spans.
MOST_SPANS = 200
#: A stage's JVM lives for seconds only. Stopping at the quick compiler halves the CPU time of preprocess.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LOGGING = f"-Dlog4j2.configurationFile={(ROOT / 'tasks' / 'log4j2.properties').as_uri()}"

#: The variables of Spark that keep their value: addresses of this machine, the Python of executors, and a folder with
#: settings of the user's.
_OURS = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS", "PYSPARK_PYTHON", "SPARK_CONF_DIR")

_COMMON = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.maxResultSize": "0",  # no limit: the keys of 50 million rows, by which preprocess selects, take 1 GB
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.executorEnv.TOKENIZERS_PARALLELISM": "false",  # each machine already runs one Python worker per core
    "spark.executorEnv.OMP_NUM_THREADS": "1",
}
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.authenticate": "true",  # the driver would deserialize what any user of the machine sends to its port
    "spark.driver.memory": "2g",  # a local master runs the executors in the driver's JVM, so they share this memory
    "spark.sql.shuffle.partitions": "4",
}


@contextmanager
def session(experiment: Experiment, name: str, *jars: Path) -> Iterator[SparkSession]:
    """Open a Spark session for a stage on `runtime.spark_master`; on exit, end its JVM and remove its scratch files.

    If this process already has an active session, that session is used and left running, without the jars. An error of
    a Spark job is raised as Transient, and what it lacks to start as BadInput.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        with jobs_as_spans(running):
            yield running
        return
    master = experiment.runtime.spark_master
    if master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys():
        raise BadInput("yarn needs the settings of its cluster: name their folder in HADOOP_CONF_DIR or YARN_CONF_DIR")
    _check_java()
    _check_temporary(Path(tempfile.gettempdir()))
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it also raises every error that it logs
    with scratch_folder(Path(tempfile.gettempdir()), "spark-bert") as scratch:
        try:
            with tracing.span("start Spark"):
                spark = _start(master, name, scratch, jars)
            with jobs_as_spans(spark):
                yield spark
        except Exception as error:
            stopped = _stopped(error)
            if stopped is None and not isinstance(error, SPARK_ERRORS):
                raise
            raise stopped or _explain(error) from error
        finally:
            _stop()


@contextmanager
def jobs_as_spans(spark: SparkSession) -> Iterator[None]:
    """Record the jobs that end within the context, unless it raises: then the JVM may answer no more calls."""
    if not tracing.is_recording():
        yield
        return
    before: set[int] = set()
    with _harmless():
        before = {job.jobId() for job in _jobs(spark)}
    yield
    with _harmless():
        new = [job for job in _jobs(spark) if job.jobId() not in before and job.completionTime().isDefined()]
        for job in sorted(new, key=lambda job: int(job.jobId()))[-MOST_SPANS:]:
            start, end = (time.get().getTime() * 1_000_000 for time in (job.submissionTime(), job.completionTime()))
            status, name = job.status().toString(), str(job.name())
            error = None if status == "SUCCEEDED" else f"the job has {status.lower()}"
            name = "a job of a query" if name.startswith("$anonfun$") else name
            attributes = {"spark.job": job.jobId(), "spark.tasks": job.numTasks()}
            tracing.add(f"Spark: {name}", start, end, error, **attributes)


@contextmanager
def _harmless() -> Iterator[None]:
    """Log any error: a trace is no reason to fail."""
    try:
        yield
    except Exception as error:
        log.warning("Spark does not say which jobs it had, so the trace lacks some of them: %s", error)


def _jobs(spark: SparkSession) -> list[Any]:
    """Return org.apache.spark.status.api.v1.JobData of all jobs that Spark still knows of, but the EMPTY ones."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # the record follows the jobs
    found = context.statusStore().jobsList(None)
    jobs = [found.apply(number) for number in range(found.length())]
    return [job for job in jobs if not (job.description().isDefined() and job.description().get() == EMPTY)]


@dataclass(frozen=True)
class Executors:
    """The executors of a session: see Workers in tasks/workers.py."""

    spark: SparkSession
    staged: Staging

    def map(self, work: Callable[[int], T], count: int, tasks: int | None = None) -> list[T]:
        """Do the work for each number, by default in a task for each."""

        def run(number: int) -> list[pa.RecordBatch]:
            return [answer(number, work(number))]

        return answers(map_numbers(self.spark, count, run, ANSWER, tasks)) if count else []


def answer(number: int, found: Any) -> pa.RecordBatch:
    """Return what was found for a number as a row that `answers` reads."""
    return pa.RecordBatch.from_pydict({"piece": [number], "answer": [pickle.dumps(found)]})


def answers(frame: DataFrame) -> list[Any]:
    """Return what executors have answered, in the order of the numbers."""
    return [pickle.loads(answer) for answer in frame.toArrow().sort_by("piece")["answer"].to_pylist()]


def map_numbers(
    spark: SparkSession,
    count: int,
    work: Callable[[int], Iterable[pa.RecordBatch]],
    schema: StructType | str,
    tasks: int | None = None,
) -> DataFrame:
    """Return the rows that executors make for each number from 0 to count - 1, by default in a task for each."""

    def run(chunks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            for number in chunk.column(0).to_pylist():
                yield from work(number)

    return spark.range(0, count, 1, tasks or count).mapInArrow(run, schema)


def keep_workers(spark: SparkSession) -> None:
    """Keep Spark from ending the Python workers and what they loaded, which it does after a minute without a task."""
    context = spark.sparkContext
    managers = context._jsc.sc().getExecutorMemoryStatus().size()
    executors = max(1, managers - 1)  # the driver is one of them; with a local master, the only one
    context.setJobDescription(EMPTY)
    # One task for each. More would start workers that have loaded nothing, and all workers take turns.
    spark.range(0, executors, 1, executors).mapInArrow(lambda chunks: chunks, "id long").collect()
    context.setJobDescription(None)  # type: ignore[arg-type]  # which Spark documents as its way to clear it


def place(path: Path) -> str:
    """Return a path as Spark takes it for this very file or folder. Hadoop does not decode it, as it would a URI."""
    return f"file:{path.absolute()}"


def read_parquet(spark: SparkSession, path: Path) -> DataFrame:
    """Read a Parquet file or folder. By default, Spark takes a path with [ ] { } ? or * for a pattern."""
    return spark.read.option("__globPaths__", "false").parquet(place(path))  # Spark's own option, for streams of files


def _start(master: str, name: str, scratch: Path, jars: Sequence[Path]) -> SparkSession:
    settings = _COMMON | {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.extraJavaOptions": f'{_SHORT_LIVED} -Djava.io.tmpdir="{scratch}" {_LOGGING}',
    }
    if jars:
        links = [scratch / f"{number}.jar" for number in range(len(jars))]
        for link, jar in zip(links, jars, strict=True):  # no form of a path with brackets can be written as spark.jars
            link.symlink_to(jar.absolute())
        settings["spark.jars"] = ",".join(map(str, links))
        settings["spark.executor.extraJavaOptions"] = "-Duser.timezone=UTC"  # databases write times in a zone
        settings["spark.driver.extraJavaOptions"] += " -Duser.timezone=UTC"
    if master.startswith("local"):
        settings |= _LOCAL
        os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    else:
        settings[f"spark.executorEnv.{executors.VERSIONS}"] = executors.versions()
    _leave_other_installation(local=master.startswith("local"))
    # The driver's JVM starts Python too, to plan the sources of streams, and does not show it what addPyFile adds.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    os.environ["PYSPARK_PIN_THREAD"] = "false"  # otherwise an interrupted call blocks the next one
    conf = SparkConf().setMaster(master).setAppName(f"spark-bert {name}").setAll(list(settings.items()))
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except SPARK_ERRORS as error:
        if master.startswith("local"):
            raise
        reason = (re.findall(r"^(?:: |Caused by: )(.+)", str(error), re.MULTILINE) or [str(error)])[-1]
        raise Transient(
            f"{master} cannot be used ({reason}): start the cluster, or correct runtime.spark_master or the settings "
            "in the folder SPARK_CONF_DIR"
        ) from error
    signal.signal(signal.SIGINT, on_interrupt)  # Spark's own handler would call the JVM in the middle of another call
    if not is_local(spark):
        spark.sparkContext.addPyFile(_code(scratch).as_uri())
    return spark


def _stop() -> None:
    """End the JVM by closing its standard input. The JVM then stops its jobs and removes its files.

    The connection to the JVM is not used, since a Ctrl-C or a kill of the process group leaves it in an unknown state.
    """
    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    if context is not None:
        context._jsc = None  # keeps stop() from calling the JVM
        context.stop()
    if gateway is None:
        return
    gateway.close()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(timeout=20)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
    SparkContext._gateway = SparkContext._jvm = None  # a later session then starts a new JVM


def _code(scratch: Path) -> Path:
    path = scratch / CODE
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("include", "tasks"):
            archive.write(ROOT / package, package)  # without this, a package that has no __init__.py is not found
            for file in sorted((ROOT / package).rglob("*.*")):
                if file.suffix in _SUFFIXES:
                    archive.write(file, file.relative_to(ROOT))
    return path


def _leave_other_installation(local: bool) -> None:
    """Remove the settings of another Spark or Hadoop from the environment, apart from how a cluster is reached."""
    of_hadoop = ("HADOOP_", "YARN_", "HIVE_") if local else ()
    for name in list(os.environ):
        if (
            name.startswith(("SPARK_", "PYSPARK_", *of_hadoop))
            and not name.startswith("SPARK_BERT_")
            and name not in _OURS
        ):
            del os.environ[name]
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["SPARK_ENV_LOADED"] = "1"  # else Spark's scripts take these settings again from spark-env.sh


def _check_temporary(folder: Path) -> None:
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise BadInput(
            f"{folder} is on a file system that is mounted noexec, but Spark loads libraries from there: set TMPDIR to "
            "another folder"
        )


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    remedy = f"install a Java runtime, {JAVA} or newer (Debian: apt-get install openjdk-{JAVA}-jre-headless)"
    if shutil.which(java) is None:
        where = f"JAVA_HOME={home} contains no bin/java" if home else "there is no java on the PATH"
        raise BadInput(f"Spark needs Java, and {where}: {remedy}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None or int(version[1]) < JAVA:
        raise BadInput(f"Spark needs Java {JAVA} or newer, but {java} reports {said.splitlines()[:1]}: {remedy}")


def _stopped(error: BaseException | None) -> BaseException | None:
    """Return the Ctrl-C or SIGTERM that caused the error, if any: py4j fails when it or the JVM is interrupted."""
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__context__
    return error


def _explain(error: Exception) -> StageError:
    """Log Spark's error with its stack trace, and return it as an error with a one-line message."""
    text = str(error)
    log.error("%s", text)
    ours = re.search(r"include\.stages\.(BadInput|Transient): (.*)", text)
    if ours:
        return BadInput(ours[2]) if ours[1] == "BadInput" else Transient(ours[2])
    if problem := executors.problem(text):
        return problem
    if os.strerror(errno.ENOSPC) in text:
        return Transient(
            "no space is left for Spark's files: free some space and run the stage again (nothing was kept)"
        )
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]+(Error|Exception): ", line)]
    return Transient(f"a Spark job failed: {lines[-1] if lines else text[:200]}; nothing was kept")
