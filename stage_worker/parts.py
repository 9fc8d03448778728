"""What the parts of a model hold and cost, found without memory for any of it.

What a part adds is the difference between a stage with it and one without, so that a tensor that two parts keep, such
as the output of one that is the input of the next, counts once.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
from takt.v1 import workers_pb2 as pb

from stage_worker.models.objective import Objective
from stage_worker.models.skeleton import Skeleton, build_skeleton
from stage_worker.models.variants import most_positions
from stage_worker.rehearsal import Rehearsal, Rehearsed

_MOST_WIDTH = 128
_ROWS = (1, 2)

_Shape = tuple[int, int]
"""Rows and width."""
_Runs = Mapping[_Shape, Rehearsed]


def model_parts(config: Any, objective: Objective, *, dtype: torch.dtype) -> pb.ModelParts:
    """Return the parts of the model of a config that is fitted to its task; takes seconds.

    Args:
        config: of the whole model.
        objective: decides head and loss.
        dtype: what layers compute in.

    Raises:
        UnsupportedModelError: as ``build_skeleton``.
    """
    skeleton = build_skeleton(config, objective)
    own, shared = _parameters(skeleton)
    rehearsal = Rehearsal(skeleton, config, dtype=dtype)
    head = len(skeleton.blocks) - 1
    one = _runs(rehearsal, config, [1])
    # A model of one layer has one stage, so it does not matter what of it is the stage's.
    two = _runs(rehearsal, config, [1, 2]) if head > 2 else one  # noqa: PLR2004
    zero = {shape: Rehearsed(forward_operations=0, activation_bytes=0, waiting_bytes=0) for shape in one}
    layer_runs = (two, one) if head > 2 else (one, zero)
    ...
