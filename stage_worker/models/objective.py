"""What a model learns to predict."""

import enum


class Objective(enum.StrEnum):
    """What the loss is taken of; the value is its name in the job file."""

    CLASSIFICATION = "classification"
    MASKED_LM = "masked_lm"
    CAUSAL_LM = "causal_lm"
