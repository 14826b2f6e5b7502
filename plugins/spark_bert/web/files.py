"""The web app that serves files of artifacts, read-only, to users who may read the Dag of the run.

It serves only what the stage's result lists under "files", such as the report but not the weights. Stages write records
and artifacts, so it trusts no path in them: it follows no links, and sends the file that it has opened.
"""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO

from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse

from include.artifacts import MANIFEST
from include.folders import open_file
from spark_bert.deployment.places import home, run_folder
from spark_bert.web.access import require_dag_access
from spark_bert.web.panel.records import mapping, read_json, read_record

#: Reports contain text from the data, so browsers must not run scripts in them or load anything from other servers.
_HEADERS = {
    "Content-Security-Policy": "sandbox allow-same-origin allow-popups; default-src 'none'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-cache",
}
_CHUNK = 1 << 16  # bytes
mimetypes.add_type("application/vnd.apache.parquet", ".parquet")  # without it, a browser shows the file as text

app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)


@app.api_route(
    "/runs/{dag_id}/{run_id}/{stage}/{file:path}", methods=["GET", "HEAD"], dependencies=[Depends(require_dag_access)]
)
def artifact_file(dag_id: str, run_id: str, stage: str, file: str) -> StreamingResponse:
    """Send a file of the artifact that a stage made in a run, or answer 404 if it must not be served."""
    try:
        content = _open_served(run_folder(dag_id, run_id).name, stage, file)
    except (OSError, ValueError) as error:
        raise HTTPException(404, f"{stage} has made no file {file} in the run {run_id} of the Dag {dag_id}") from error
    headers = _HEADERS | {"Content-Length": str(os.fstat(content.fileno()).st_size)}
    return StreamingResponse(
        _chunks(content), media_type=mimetypes.guess_type(file)[0] or "text/plain", headers=headers
    )


def _open_served(run: str, stage: str, file: str) -> BinaryIO:
    """Open the file. Raise OSError or ValueError if it is missing or must not be served."""
    artifact = home() / "artifacts", stage, read_record(run).key(stage)
    manifest, _ = read_json(*artifact, MANIFEST)
    served = mapping(mapping(manifest.get("result")).get("files")).values()
    if file not in mapping(manifest.get("files")) or not any(_serves(str(named), file) for named in served):
        raise FileNotFoundError(file)
    return open_file(*artifact, *file.split("/"))


def _serves(named: str, file: str) -> bool:
    """Return whether naming one file serves the other: the file itself, or all files in the folder of an HTML page."""
    folder = PurePosixPath(named).parent
    # A page at the top of the artifact does not count, because its folder is the whole artifact.
    own = named.endswith(".html") and folder != PurePosixPath()
    return file == named or (own and PurePosixPath(file).is_relative_to(folder))


def _chunks(content: BinaryIO) -> Iterator[bytes]:
    with content:
        while chunk := content.read(_CHUNK):
            yield chunk
