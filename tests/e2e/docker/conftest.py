"""What the tests on a Docker engine share: the engine, the base image and the project's own images."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.docker.base_image import make_base_image
from tests.e2e.docker.engine import buildkit, running_engine
from tests.e2e.docker.proxy import Proxy, running_proxy
from tests.e2e.docker.wheelhouse import fill_wheelhouse
from tests.e2e.make_run import ROOT

IMAGES = ("data", "train", "search", "airflow")


@pytest.fixture(scope="session", autouse=True)
def engine() -> Iterator[None]:
    """A Docker engine that answers and holds the base image, whether it was there or is the tests' own."""
    with running_engine():
        make_base_image()
        yield


@pytest.fixture(scope="session")
def images(engine: None) -> dict[str, str]:
    """The images of this checkout, by name, as `make images` builds them."""
    fill_wheelhouse(ROOT / "wheelhouse")
    subprocess.run([ROOT / "scripts/images.sh", *IMAGES], env=os.environ | buildkit(), check=True)
    repository, tag = os.environ.get("SPARK_BERT_IMAGES", "spark-bert"), os.environ.get("SPARK_BERT_TAG", "latest")
    return {name: f"{repository}/{name}:{tag}" for name in IMAGES}


@pytest.fixture(scope="module")
def proxy(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """The proxy before the engine, with a home of its own."""
    with running_proxy(tmp_path_factory.mktemp("home")) as proxy:
        yield proxy
