"""The model that labels the next batch."""

from __future__ import annotations

import logging
from pathlib import Path

from include.experiment import Experiment
from include.folders import user_path
from include.runs import Run
from include.stages import BadInput, StageError
from tasks.encoder.loading import read_head
from tasks.inference.chosen_model import Model, check_texts, chosen, state_of
from tasks.tracking.registry import CHAMPION, Registry

log = logging.getLogger(__name__)


class Answering:
    """Follows the champion from batch to batch, unless the experiment names the folder of a model."""

    def __init__(self, experiment: Experiment, run: Run) -> None:
        self._experiment, self._run = experiment, run
        self._registry = None if experiment.streaming.model else Registry.of(experiment, run)
        self._number = self._champion()
        self._state = self._named_state()
        self._model = self._chosen()

    def check(self) -> None:
        """Raise BadInput if the files of a named model have changed: Spark's workers load them whenever they start."""
        if self._named_state() != self._state:
            raise BadInput(
                f"{self._experiment.streaming.model} was changed while the stream labels with it, so it is not "
                "known which of the files have answered: give every model a folder of its own, name it as "
                "streaming.model, and start the stream again"
            )

    def model(self) -> Model:
        """Return the model for the next batch.

        If a new champion is damaged or does not fit the texts, or if MLflow does not answer, the model before it goes
        on, and the log says why. Only MLflow is asked again with the next batch.
        """
        number = self._number
        try:
            number = self._champion()
            if number != self._number:
                self._model = self._chosen()
                self._number = number
                log.info("%s labels from now on", self._model.version)
        except StageError as error:
            log.error("%s goes on: %s", self._model.version, error)
            if isinstance(error, BadInput):
                self._number = number
        return self._model

    def _named_state(self) -> dict[str, tuple[int, int]]:
        named = self._experiment.streaming.model
        return state_of(user_path(named).absolute()) if named else {}

    def _chosen(self) -> Model:
        model = chosen(self._experiment, self._run, "streaming")
        check_texts(self._experiment, read_head(Path(model.trained.folder)), model, "streaming")
        return model

    def _champion(self) -> str | None:
        """Return the number of the champion; None if there is none, or if a folder is named."""
        return None if self._registry is None else self._registry.aliases().get(CHAMPION)
