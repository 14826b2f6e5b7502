"""The command line of the service: `python -m tasks.serving --experiment NAME --home FOLDER`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn
import uvloop

from include.experiment import Experiment
from include.folders import user_folder
from include.logs import configure
from include.named_experiments import load
from include.runs import Run
from include.secrets import SERVING, VARIABLE
from include.stages import BadInput, ExitCode, StageError
from tasks.serving.aliases import AliasWatch
from tasks.serving.app import build
from tasks.serving.connections import Connection
from tasks.serving.metrics import Metrics
from tasks.serving.served_model import open_model
from tasks.serving.service import Service
from tasks.tracking.registry import Registry

log = logging.getLogger("tasks.serving")
#: A look at the registry is repeated anyway, and the service cannot stop before it ends.
MLFLOW = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}


def main() -> int:
    """Serve until a signal arrives, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tasks.serving", description=__doc__)
    parser.add_argument("--experiment", default="retrain", help="a named experiment, a YAML file or JSON")
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("SPARK_BERT_HOME") or "work"))
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE", help="override")
    options = parser.parse_args()
    for name, value in MLFLOW.items():
        os.environ.setdefault(name, value)
    try:
        configure()
        uvloop.run(_serve(load(options.experiment, options.set), options.home))
    except (StageError, OSError) as error:
        log.error("%s", error)
        return error.exit_code if isinstance(error, StageError) else ExitCode.BAD_INPUT
    return ExitCode.DONE


async def _serve(experiment: Experiment, home: Path) -> None:
    """Listen at once, and be ready when the model is loaded."""
    serving = experiment.serving
    _check_address(serving.host, serving.port)
    service = Service(serving, Metrics())
    config = uvicorn.Config(
        build(service, _token()),
        serving.host,
        serving.port,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,  # a line per request costs as much as its tokens
        proxy_headers=False,  # any client may forge them, and clients share the queue by their addresses
        timeout_graceful_shutdown=math.ceil(serving.deadline) + 1,
    )
    server = uvicorn.Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # uvicorn raises the signal again when it has stopped
    listening = asyncio.create_task(server.serve())
    loading = asyncio.create_task(_load(service, experiment, home))
    await asyncio.wait((listening, loading), return_when=asyncio.FIRST_COMPLETED)
    if loading.done() and loading.exception() is None:  # the one model of a folder is loaded
        await asyncio.wait((listening,))
    server.should_exit = True
    loading.cancel()
    results = await asyncio.gather(listening, loading, return_exceptions=True)
    await service.close()
    for result in results:
        if isinstance(result, Exception):
            raise result


def _check_address(host: str, port: int) -> None:
    """Raise BadInput if the service cannot listen there, for which uvicorn would show a traceback."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise BadInput(
            f"cannot listen on port {port} of {host} ({error.strerror}): choose another serving.port or serving.host"
        ) from error


async def _load(service: Service, experiment: Experiment, home: Path) -> None:
    serving, max_risk = experiment.serving, experiment.prediction.max_risk
    if serving.model:
        folder, opened = user_folder(serving.model), (serving.threads, serving.form, max_risk)
        await service.use(await asyncio.to_thread(open_model, folder, "spark-bert", folder.name, *opened))
    else:
        run = Run(home / "runs/serve")
        registry = await asyncio.to_thread(Registry.of, experiment, run)  # importing MLflow takes seconds
        await AliasWatch(service, registry, run.store, max_risk).watch()


def _token() -> str:
    folder = os.environ.get(VARIABLE, "")
    file = Path(folder) / SERVING
    if not folder or not file.is_file():
        return ""
    token = file.read_text(encoding="utf-8").strip()
    if not token:
        raise BadInput(f"{file} is empty: write the bearer token that requests must have, or remove the file")
    return token


if __name__ == "__main__":
    sys.exit(main())
