"""The sections of an experiment, and the rules that concern a single section."""

from __future__ import annotations

from include.sections.base import Section
from include.sections.data import FORMATS, Augmentation, Cleaning, Data, Preprocessing, Validation
from include.sections.labeling import Scoring, Serving, Streaming
from include.sections.ranks import Communication, Parallel, Runtime
from include.sections.results import Gate, Prediction, Publication, Study, Submission
from include.sections.retraining import Dataset, Retention, Retraining
from include.sections.training import Batching, Loss, Model, Pretraining, Training

__all__ = [
    "FORMATS",
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
    "Streaming",
    "Study",
    "Submission",
    "Training",
    "Validation",
]
