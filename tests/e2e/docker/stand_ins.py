"""Images of other projects that docker-compose.yaml starts: pulled, or made from packages where they cannot be.

A stand-in has a name of its own, and behaves as the original does as far as docker-compose.yaml uses it.
"""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "stand_ins"
#: The variable of docker-compose.yaml, the image that it stands for, and the folder of the stand-in.
IMAGES = {
    "HAPROXY_IMAGE": ("haproxy:2.8-bookworm", "haproxy"),
    "POSTGRES_IMAGE": ("postgres:16-bookworm", "postgres"),
    "MLFLOW_IMAGE": ("ghcr.io/mlflow/mlflow:v3.17.2", "mlflow"),
}


def others(stages: str) -> dict[str, str]:
    """The variables of docker-compose.yaml and the images for them; `stages` is our image of the stages."""
    with ThreadPoolExecutor() as pool:  # they wait for downloads most of the time
        return dict(zip(IMAGES, pool.map(lambda variable: image(variable, stages), IMAGES), strict=True))


@cache
def image(variable: str, stages: str = "") -> str:
    """The image for a variable: the public one, or its stand-in."""
    public, name = IMAGES[variable]
    if _docker("image", "inspect", public).returncode == 0 or _docker("pull", "--quiet", public).returncode == 0:
        return public
    stand_in = f"spark-bert-stand-in/{name}"
    built = _docker("build", "--quiet", "--build-arg", f"STAGES={stages}", "--tag", stand_in, str(FOLDER / name))
    assert built.returncode == 0, f"{public} cannot be pulled, and its stand-in does not build: {built.stderr[-2000:]}"
    return stand_in


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    classic = os.environ | {"DOCKER_BUILDKIT": "0"}  # the client may lack the other builder
    return subprocess.run(["docker", *arguments], env=classic, capture_output=True, text=True, check=False)
