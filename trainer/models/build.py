"""The model that an experiment asks for."""

from __future__ import annotations

import torch

from experiments.experiment import Experiment
from preprocess.contracts import BatchLayout
from trainer.contracts import Model
from trainer.models.deepfm import DeepFm
from trainer.models.lr import LogisticRegression


def build(experiment: Experiment, layout: BatchLayout, generator: torch.Generator) -> Model:
    """A new model with its initial parameters. All randomness, now and in training, comes from ``generator``."""
    if experiment.model.deepfm is not None:
        spec = experiment.model.deepfm
        return DeepFm(layout, spec.mlp, spec.dropout, generator)
    return LogisticRegression(layout)
