"""The images: what is in them, what is not, how they run, and how little a changed line of code builds anew."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.docker.conftest import IMAGES
from tests.e2e.docker.engine import buildkit
from tests.e2e.make_run import ROOT

Images = dict[str, str]
#: A stage's surroundings at their hardest: no network, nothing to write to but /tmp, a user whom the image has not.
SANDBOX = (
    *("--read-only", "--tmpfs=/tmp:exec", "--network=none", "--hostname=localhost", "--user=4242:4242"),
    *("--cap-drop=ALL", "--security-opt=no-new-privileges"),
)
LEFT_OVERS = """
import shutil
from pathlib import Path
left = [name for name in ("gcc", "g++", "cmake", "make", "pip", "git") if shutil.which(name)]
left += [path for path in ("/build", "/root/.cache", "/tmp/.cache") if Path(path).exists()]
for folder in ("/opt", "/root", "/tmp", "/var"):
    left += [str(path) for path in Path(folder).rglob("*") if path.suffix in (".whl", ".deb")]
print(left)
"""
TWO_RANKS = """
from tasks.launching.driver import run_here

rank = '''
import horovod.torch as hvd, torch
hvd.init()
total = hvd.allreduce(torch.ones(3) * hvd.rank(), op=hvd.Sum).tolist()
assert total == [1.0, 1.0, 1.0]
'''
print(run_here(["-c", rank], "localhost:2"))
"""
SPARK = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
print(spark.range(5).count())
"""


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def python(image: str, code: str, *options: str) -> str:
    """The last line that Python prints in a container of the image."""
    command = ("docker", "run", "--rm", *SANDBOX, *options, "--entrypoint=python", image, "-c", code)
    return output(*command).splitlines()[-1]


def inspect(image: str) -> dict[str, Any]:
    return dict(json.loads(output("docker", "image", "inspect", image))[0])


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_a_plain_user_and_its_revision(images: Images, name: str) -> None:
    config = inspect(images[name])["Config"]
    described = "git describe --always --dirty --abbrev=40 2>/dev/null || echo unknown"
    revision = output("bash", "-c", f"cd {ROOT} && ({described})")
    assert config["User"] == "1000:1000"
    assert config["Labels"]["org.opencontainers.image.revision"] == revision
    assert f"SPARK_BERT_REVISION={revision}" in config["Env"]


@pytest.mark.parametrize("name", IMAGES)
def test_nothing_of_the_build_is_left(images: Images, name: str) -> None:
    assert python(images[name], LEFT_OVERS, "--user=root") == "[]"


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("data", ("torch", "pyspark", "great_expectations", "tasks"), ("horovod", "airflow", "pytest")),
        ("train", ("torch", "pyspark", "horovod", "tasks"), ("great_expectations", "airflow", "pytest")),
        ("search", ("torch", "pyspark", "horovod", "great_expectations", "optuna", "tasks"), ("airflow", "pytest")),
        ("airflow", ("airflow", "docker", "kubernetes", "spark_bert"), ("torch", "pyspark", "tasks", "pytest")),
    ],
)
def test_an_image_holds_its_part(images: Images, name: str, has: tuple[str, ...], lacks: tuple[str, ...]) -> None:
    code = f"from importlib.util import find_spec; print([name for name in {has + lacks} if find_spec(name)])"
    assert python(images[name], code) == str(list(has))


@pytest.mark.parametrize("name", ["data", "train", "search"])
def test_a_stage_image_is_the_stages_command_line(images: Images, name: str) -> None:
    assert output("docker", "run", "--rm", *SANDBOX, images[name], "--help").startswith("usage: python -m tasks")


@pytest.mark.long
def test_the_image_of_the_service_is_its_command_line_and_has_no_torch(engine: None) -> None:
    """That it answers is a test of the platform: test_compose.py."""
    subprocess.run([ROOT / "scripts/images.sh", "serve"], env=os.environ | buildkit(), check=True)
    repository, tag = os.environ.get("SPARK_BERT_IMAGES", "spark-bert"), os.environ.get("SPARK_BERT_TAG", "latest")
    image = f"{repository}/serve:{tag}"
    assert output("docker", "run", "--rm", *SANDBOX, image, "--help").startswith("usage: python -m tasks.serving")
    names = ("torch", "pyspark", "pandas", "pytest", "fastapi", "onnxruntime", "openvino", "mlflow", "tasks")
    code = f"from importlib.util import find_spec; print([name for name in {names} if find_spec(name)])"
    assert python(image, code) == str(list(names[4:]))
    assert python(image, LEFT_OVERS, "--user=root") == "[]"


def test_spark_runs_in_the_sandbox(images: Images) -> None:
    assert python(images["data"], SPARK) == "5"


def test_two_ranks_meet_in_the_sandbox(images: Images) -> None:
    assert python(images["train"], TWO_RANKS) == "None"  # neither was lost


def test_ranks_have_no_more_threads_than_their_container_has_processors(images: Images) -> None:
    code = "from tasks.launching.launch import _environment; print(_environment(1)['OMP_NUM_THREADS'])"
    assert python(images["train"], code, "--cpus=1") == "1"


@pytest.fixture
def changed(images: Images, tmp_path: Path) -> Iterator[Images]:
    """The images of a copy of this checkout in which a line of tasks/ and one of dags/ differ."""
    for name in ("dags", "include", "plugins", "requirements", "scripts", "tasks", "wheelhouse"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Dockerfile", ".dockerignore"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("tasks/scoring/metrics.py", "dags/finetune.py"):
        with (tmp_path / name).open("a") as file:
            file.write("# another line\n")
    repository = f"spark-bert-test-{uuid.uuid4().hex[:8]}"
    environment = os.environ | buildkit() | {"SPARK_BERT_IMAGES": repository}
    subprocess.run([tmp_path / "scripts/images.sh", *IMAGES], env=environment, check=True)
    tags = output("docker", "images", "--format={{.Repository}}:{{.Tag}}", f"--filter=reference={repository}/*")
    try:
        yield {name: f"{repository}/{name}" for name in IMAGES}
    finally:
        output("docker", "rmi", *tags.splitlines())


def test_a_changed_line_builds_one_layer_anew(images: Images, changed: Images) -> None:
    for name in IMAGES:
        before, after = (inspect(one[name])["RootFS"]["Layers"] for one in (images, changed))
        assert after[:-1] == before[:-1] and after[-1] != before[-1], name


def test_an_image_that_does_not_exist_is_named() -> None:
    done = subprocess.run([ROOT / "scripts/images.sh", "evaluate"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no image evaluate: data, train, search, train-gpu, search-gpu, serve or airflow" in done.stderr
