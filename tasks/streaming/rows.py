"""The rows that every source of a stream gives, before they are parsed.

| column | of a topic | of files |
| --- | --- | --- |
| source | the topic and the partition, as `reviews-3` | the name of the file |
| position | the message's offset | the number of the line, from 1 |
| time | the message's timestamp; null if it has none | when the file was last changed |
| row | the message's value, which should be one JSON object | the line, or the row as a JSON object |
| problem | why the row cannot be read, or null; row is then what could be decoded, or null | the same |

Bytes that are no text, such as images in Parquet, are objects in the row: {"base64": "..."}.
"""

from __future__ import annotations

import pyarrow as pa

#: The problem of a message that has no value.
NO_VALUE = "no value (a tombstone)"
#: The columns, as Spark writes them.
SCHEMA = "source string, position bigint, time timestamp, row string, problem string"
#: The same columns in Arrow, as Spark wants them.
ARROW = pa.schema(
    {"source": pa.string(), "position": pa.int64(), "time": pa.timestamp("us", "UTC")}
    | dict.fromkeys(("row", "problem"), pa.string())
)
