"""The source of a stream as the experiment describes it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from include.answers import MODEL_VERSION, reserved
from include.artifacts import write_json
from include.fields.labeling import Streaming
from include.folders import user_path
from include.stages import BadInput
from tasks.stages.labeling.stream.batches import CHECKPOINT
from tasks.stages.labeling.stream.label import COLUMNS
from tasks.streaming.files import FileSource, changed_files
from tasks.streaming.kafka import KafkaSource, open_topic

log = logging.getLogger(__name__)


def check_source(streaming: Streaming, max_risk: float | None = None) -> None:
    """Raise BadInput if the experiment does not say where the rows come from, or if two columns would have one name."""
    needed = ("folder",) if streaming.source == "files" else ("brokers", "topic")
    for name in needed:
        if not getattr(streaming, name):
            raise BadInput(f"streaming.{name} is empty, but streaming.source is {streaming.source}: write it")
    if streaming.source == "files" and not user_path(streaming.folder).is_dir():
        raise BadInput(f"there is no folder {user_path(streaming.folder)}: make it, or correct streaming.folder")
    for name in streaming.texts:  # Spark ignores the case of names
        if name.casefold() in (*COLUMNS, MODEL_VERSION, "batch") or reserved(name, max_risk):
            raise BadInput(f"the column {name!r} has a name that the labeled rows need: rename it where it is written")
    if streaming.text.casefold() == streaming.text2.casefold():
        raise BadInput(f"streaming.text and streaming.text2 are both {streaming.text!r}: name two columns")


def remember(streaming: Streaming, file: Path) -> None:
    """Write down what the stream reads, or raise BadInput if it was begun with something else.

    Spark's checkpoint has numbers of files and messages only, which mean nothing in another folder or topic. A folder
    in the home is written down without the path of the home, which may be moved. Any other folder that was moved cannot
    be recognized reliably.
    """
    home, files = file.parents[2], streaming.source == "files"
    where = str(user_path(streaming.folder).absolute()) if files else streaming.topic
    wanted = {"source": streaming.source, "reads": where, "texts": list(streaming.texts)}
    if not (file.parent / CHECKPOINT).exists():  # nothing was read yet
        write_json(file, wanted | {"reads": where.removeprefix(f"{home}/")})
    begun = json.loads(file.read_text(encoding="utf-8"))
    if begun["source"] == "files":
        begun["reads"] = str(home / begun["reads"])
    if begun != wanted:
        same = f" If it is the same folder at another path, write that as reads into {file}." if files else ""
        raise BadInput(
            f"the stream {streaming.name} was begun with {_in_words(begun)}, not {_in_words(wanted)}: choose another "
            f"streaming.name, or remove {file.parent} to begin anew.{same}"
        )


def open_source(spark: SparkSession, streaming: Streaming, folder: Path) -> DataFrame:
    """Return the rows to come, in the columns of tasks/streaming/rows.py, for a stream in this folder."""
    if streaming.source == "kafka-java":
        return open_topic(spark, streaming)
    source: type[DataSource] = KafkaSource
    options = {name: getattr(streaming, name) for name in ("brokers", "topic", "starting")}
    options["rows"] = streaming.batch_rows
    if streaming.source == "files":
        source, noted = FileSource, folder / "files.jsonl"
        if not noted.exists() and any((folder / CHECKPOINT / "offsets").glob("[0-9]*")):
            raise BadInput(
                f"{noted} is missing, so it is not known which files were read: put it back, or remove {folder} to "
                "label all rows again"
            )
        noted.touch()  # Spark's first batch may have no files
        options = {
            "folder": user_path(streaming.folder).absolute(), "log": noted.absolute(),
            "settle": streaming.settle, "files": streaming.batch_files,
            "partitions": spark.sparkContext.defaultParallelism,
        }  # fmt: skip
    spark.dataSource.register(source)
    return spark.readStream.format(source.name()).options(**{name: str(one) for name, one in options.items()}).load()


class Changes:
    """Warns once of each file that was changed after the stream noted it: what was added to it is not labeled."""

    def __init__(self, streaming: Streaming, folder: Path) -> None:
        self.names: list[str] = []
        self._files = (user_path(streaming.folder), folder / "files.jsonl") if streaming.source == "files" else None

    def look(self) -> None:
        """Look for more of them."""
        for name in changed_files(*self._files) if self._files else ():
            if name not in self.names:
                self.names.append(name)
                log.warning(
                    "%s has another size than when the stream noted it: rows that were added after it was read are not "
                    "labeled; put new rows into a new file",
                    name,
                )


def _in_words(what: dict[str, Any]) -> str:
    return f"{what['source']} of {what['reads']} and the texts {', '.join(what['texts'])}"
