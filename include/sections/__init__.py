"""The sections of an experiment, one module per subject, and the rules that concern a single section."""

from __future__ import annotations

from include.sections.base import Section, Share, Threshold
from include.sections.communication import Communication
from include.sections.data import Augmentation, Cleaning, Data, Preprocessing, TaskName, Validation
from include.sections.evaluation import Gate
from include.sections.model import Model
from include.sections.output import Prediction, Publication, Submission
from include.sections.parallel import Parallel
from include.sections.retraining import Dataset, Retraining
from include.sections.runtime import Retention, Runtime
from include.sections.scoring import Scoring
from include.sections.serving import Serving
from include.sections.streaming import Streaming
from include.sections.study import Study
from include.sections.training import Batching, Loss, Pretraining, Training

__all__ = [
    "Augmentation",
    "Batching",
    "Cleaning",
    "Communication",
    "Data",
    "Dataset",
    "Gate",
    "Loss",
    "Model",
    "Parallel",
    "Prediction",
    "Preprocessing",
    "Pretraining",
    "Publication",
    "Retention",
    "Retraining",
    "Runtime",
    "Scoring",
    "Section",
    "Serving",
    "Share",
    "Streaming",
    "Study",
    "Submission",
    "TaskName",
    "Threshold",
    "Training",
    "Validation",
]
