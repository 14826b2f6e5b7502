"""A trained model in a folder, and the form in which it computes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from include.fields.results import Prediction
from include.stages import BadInput
from tasks.encoder.batching import Array
from tasks.encoder.spec import HeadSpec, described_head, read_values
from tasks.inference.chosen_form import choose, guard_of
from tasks.inference.packaged_backends import MODEL, Form, backend_of, file_of
from tasks.inference.packaged_model import DESCRIPTION
from tasks.inference.runner import Backend
from tasks.scoring.risk import Guard

if TYPE_CHECKING:
    from tasks.encoder.models import Classifier


@dataclass(frozen=True)
class TrainedModel:
    """A trained model and one of its forms. It names files only, so it can be sent to Spark's workers."""

    folder: str  # with the model in transformers' format: its config.json and its tokenizer
    file: str  # of the form; for PyTorch it is the folder
    engine: str = "torch"  # or "onnxruntime" or "openvino"
    precision: str = "fp32"  # or "bf16" or "int8": in what it computes matrix products

    @classmethod
    def of(cls, folder: Path, prediction: Prediction) -> Self:
        """Choose a form of a package, or of a model in transformers' format, which PyTorch alone computes."""
        folder = folder.absolute()
        if not is_package(folder):
            if prediction.form not in ("auto", "torch-fp32"):
                raise BadInput(
                    f"{folder} is no package, so it has no prediction.form {prediction.form}: write auto or "
                    "torch-fp32, or name the folder of a package"
                )
            return cls(str(folder), str(folder))
        return cls.in_form(folder, choose(folder, "prediction", prediction.form))

    @classmethod
    def in_form(cls, package: Path, form: Form) -> Self:
        """Return the model of a package in one of its forms."""
        return cls(str(package / MODEL), str(file_of(package, form)), form["engine"], form["precision"])

    @property
    def form(self) -> str:
        """The name of the form, such as "openvino-bf16"."""
        return f"{self.engine}-{self.precision}"

    @property
    def root(self) -> Path:
        """The folder that has all of its files."""
        return Path(os.path.commonpath([self.folder, self.file]))

    def files(self) -> list[Path]:
        """Return its files, which are not those of all forms of the package."""
        file = Path(self.file)
        form = [] if self.engine == "torch" else file.parent.glob(f"{file.stem}.*")
        return sorted(one for one in (*Path(self.folder).rglob("*"), *form) if one.is_file())

    def at(self, root: Path) -> Self:
        """Return the same model in a copy of its root."""
        folder, file = (str(root / Path(path).relative_to(self.root)) for path in (self.folder, self.file))
        return replace(self, folder=folder, file=file)

    def head(self) -> HeadSpec:
        """Return the head, read without PyTorch if another library computes the form."""
        folder = Path(self.folder)
        if self.engine == "torch":
            from tasks.encoder.loading import read_head

            return read_head(folder)
        longest = json.loads((self.root / DESCRIPTION).read_bytes())["max_length"]
        return described_head(folder, read_values(folder)).spec(longest)

    def guard(self, prediction: Prediction) -> Guard | None:
        """Return what it may answer with prediction.max_risk; None without it. Raise BadInput if it is no package."""
        return guard_of(Path(self.folder).parent, self.form, prediction.max_risk)

    def open(self, threads: int, streams: int = 1, longest: int = 0) -> Backend:
        """Load the form, with a number of CPU threads for each of the calls that compute at a time, its streams.

        The longest input, in tokens, is read with PyTorch if it is not given.
        """
        if self.engine == "torch":
            from tasks.encoder.loading import load_trained

            return TorchBackend(load_trained(Path(self.file)), threads)
        if not longest:
            from tasks.encoder.loading import read_head

            longest = read_head(Path(self.folder)).max_length
        backend: Backend = backend_of(Path(self.file), self.engine, self.precision, longest, threads, streams)
        return backend


def is_package(folder: Path) -> bool:
    """Return whether a folder is that of a package."""
    return (folder / DESCRIPTION).is_file() and (folder / MODEL / "config.json").is_file()


class TorchBackend:
    """A trained model in PyTorch, in fp32, and in evaluation mode."""

    def __init__(self, model: Classifier, threads: int) -> None:
        self._model, self._threads = model.eval(), threads

    def logits(self, input_ids: Array, attention_mask: Array, token_type_ids: Array) -> Array:
        """Compute the logits of a padded batch: see Backend."""
        import torch

        device = self._model.device
        inputs = (torch.from_numpy(part).to(device) for part in (input_ids, attention_mask, token_type_ids))
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)  # of the whole process
        try:
            with torch.inference_mode():
                logits: Array = self._model(*inputs).float().cpu().numpy()
        finally:
            torch.set_num_threads(before)
        return logits
