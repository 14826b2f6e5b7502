"""What MLflow needs in the folder of a package: MLmodel, the code that loads the package, and its requirements."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from importlib import metadata
from pathlib import Path

from mlflow.models import Model, ModelSignature
from mlflow.types.schema import Array, ColSpec, DataType, Schema

from include.glue import Task
from tasks.encoder import cleaning, pooled_encoder, text_cnn, tfidf, windows
from tasks.inference import packaged_backends, packaged_model
from tasks.inference.packaged_backends import MODEL
from tasks.scoring import risk
from tasks.stages.pipeline.package.forms import Form

#: The file that describes the folder, and the package below code/ that loads it.
MLMODEL, _CODE = "MLmodel", "spark_bert_model"
_MODULES = (cleaning, windows, pooled_encoder, tfidf, text_cnn, risk, packaged_model, packaged_backends)
#: MLflow's client, with what it needs to read a registry that is a database.
_MLFLOW = ("mlflow-skinny", "sqlalchemy", "alembic", "cryptography")
_LIBRARIES = {
    "torch": ("torch", "transformers", "safetensors"),
    "onnxruntime": ("onnxruntime",),
    "openvino": ("openvino",),
}
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def columns(task: Task) -> list[str]:
    """Return the names of the columns with text."""
    return ["sentence", "sentence2"][: len(task.sentences)]


def write_mlflow_files(package: Path, task: Task, served: Form, train: str) -> None:
    """Write what MLflow needs to load a package, with the flavors python_function and transformers."""
    # The name changes with the code, so that one process can load packages of different versions.
    content = b"".join(Path(str(module.__file__)).read_bytes() for module in _MODULES)
    code = f"{_CODE}_{hashlib.sha256(content).hexdigest()[:8]}"
    _write_code(package / "code" / code)
    names = (*_MLFLOW, "numpy", "pandas", "tokenizers", *_LIBRARIES[served.engine])
    requirements = [f"{name}=={metadata.version(name).partition('+')[0]}\n" for name in names]
    (package / "requirements.txt").write_text("".join(requirements), encoding="utf-8")
    environment = f"python: {platform.python_version()}\ndependencies:\n- -r requirements.txt\n"
    (package / "python_env.yaml").write_text(environment, encoding="utf-8")
    _write_mlmodel(package, task, served, train, code)


def _write_code(folder: Path) -> None:
    """Copy the modules that load a package into folders as in the project, because they import one another."""
    for module in _MODULES:
        file = folder / Path(*module.__name__.split(".")[1:]).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(module.__file__), file)
    for part in (folder, *folder.iterdir()):
        (part / "__init__.py").write_text('"""A part of what loads the package."""\n', encoding="utf-8")


def _write_mlmodel(package: Path, task: Task, served: Form, train: str, code: str) -> None:
    inputs = Schema([ColSpec(DataType.string, name) for name in columns(task)])
    outputs = Schema([ColSpec(DataType.double, "score")])
    if task.kind == "classification":
        outputs = Schema([ColSpec(DataType.string, "label"), ColSpec(Array(DataType.double), "probabilities")])
    if task.kind == "multilabel":
        labels = ColSpec(Array(DataType.string), "labels")
        outputs = Schema([labels, ColSpec(Array(DataType.double), "probabilities")])
    model = Model(signature=ModelSignature(inputs, outputs))
    model.add_flavor(
        "python_function",
        loader_module=f"{code}.inference.packaged_model",
        code="code",
        config={"form": served.name, "max_risk": None},
        env={"virtualenv": "python_env.yaml"},
        python_version=platform.python_version(),
    )
    _add_transformers(model, package)
    model.add_flavor("spark_bert", train=train, served=served.name)
    model.save(str(package / MLMODEL))


def _add_transformers(model: Model, package: Path) -> None:
    """Add the flavor transformers, for mlflow.transformers.load_model. It expects a folder for the tokenizer."""
    tokenizer = package / "components/tokenizer"
    tokenizer.mkdir(parents=True)
    for name in _TOKENIZER:
        shutil.copyfile(package / MODEL / name, tokenizer / name)
    config = json.loads((package / MODEL / "config.json").read_text(encoding="utf-8"))
    model.add_flavor(
        "transformers",
        task="text-classification",
        instance_type="TextClassificationPipeline",
        pipeline_model_type=config["architectures"][0],
        model_binary=MODEL,
        components=["tokenizer"],
        tokenizer_type="PreTrainedTokenizerFast",
        source_model_name="",
        transformers_version=metadata.version("transformers"),
        code="",
    )
