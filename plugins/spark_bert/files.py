"""The artifacts' files in the browser: read-only, of one run at a time, for whoever may read that run's Dag.

The run's record says which artifact of a stage is the run's; of that artifact, only what its stage's result names under
"files" is shown. Stages write records and artifacts, so no path in them is trusted: every folder and file is opened
without following links, and what was opened is what is sent.
"""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, BinaryIO

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from include.artifacts import MANIFEST
from spark_bert.folders import opened_file
from spark_bert.places import home, run_folder

#: Reports hold text from the data: no script of theirs ever runs, and nothing is fetched from elsewhere.
_HEADERS = {
    "Content-Security-Policy": "sandbox allow-same-origin allow-popups; default-src 'none'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-cache",
}
_CHUNK = 1 << 16  # bytes
mimetypes.add_type("application/vnd.apache.parquet", ".parquet")  # else a browser shows it as text
_bearer = HTTPBearer(auto_error=False)


class _Entry(BaseModel):
    key: str


class _Record(BaseModel):
    stages: dict[str, _Entry]


class _Result(BaseModel):
    files: dict[str, str] = {}


class _Manifest(BaseModel):
    files: dict[str, Any]
    result: _Result


async def reader(request: Request, token: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Any:
    """Whoever is logged in; 401 for anybody else. Airflow checks no plugin's routes itself."""
    # Late, because every Airflow process loads the plugin and only the API server has this at hand.
    from airflow.api_fastapi.core_api.security import get_user

    return await get_user(request, None, token)


def may_read(dag_id: str, request: Request, user: Annotated[Any, Depends(reader)]) -> None:
    """Refuse (403) a user who may not read the Dag."""
    from airflow.api_fastapi.core_api.security import requires_access_dag

    requires_access_dag("GET", param_dag_id=dag_id)(request, user)


app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)


@app.api_route("/runs/{dag_id}/{run_id}/{stage}/{file:path}", methods=["GET", "HEAD"], dependencies=[Depends(may_read)])
def artifact_file(dag_id: str, run_id: str, stage: str, file: str) -> StreamingResponse:
    """A file of what a stage has made in a run; 404 for one that is not there or not to be shown."""
    try:
        content = _shown(run_folder(dag_id, run_id).name, stage, file)
    except (OSError, ValueError, LookupError) as error:  # ValueError: a record or manifest that is damaged
        raise HTTPException(404, f"{stage} has made no file {file} in the run {run_id} of {dag_id}") from error
    headers = _HEADERS | {"Content-Length": str(os.fstat(content.fileno()).st_size)}
    return StreamingResponse(
        _chunks(content), media_type=mimetypes.guess_type(file)[0] or "text/plain", headers=headers
    )


def _shown(run: str, stage: str, file: str) -> BinaryIO:
    """The file. Raises OSError, ValueError or LookupError where there is none to be shown."""
    with opened_file(home() / "runs", run, "run.json") as record:
        key = _Record.model_validate_json(record.read()).stages[stage].key
    artifact = home() / "artifacts", stage, key
    with opened_file(*artifact, MANIFEST) as sealed:
        manifest = _Manifest.model_validate_json(sealed.read())
    if file not in manifest.files or not any(_shows(named, file) for named in manifest.result.files.values()):
        raise FileNotFoundError(file)
    return opened_file(*artifact, *file.split("/"))


def _shows(named: str, file: str) -> bool:
    """Whether a file that a result names is this one, or a page in a folder of its own, with this one in it."""
    folder = PurePosixPath(named).parent
    own = named.endswith(".html") and folder != PurePosixPath()
    return file == named or (own and PurePosixPath(file).is_relative_to(folder))


def _chunks(content: BinaryIO) -> Iterator[bytes]:
    with content:
        while chunk := content.read(_CHUNK):
            yield chunk
