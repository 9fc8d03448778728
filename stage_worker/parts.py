"""What the parts of a model hold and cost, found without memory for any of it.

What a part adds is the difference between a stage with it and one without, so that a tensor that two parts keep, such
as the output of one that is the input of the next, counts once.
"""

import copy
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import torch
from takt.v1 import workers_pb2 as pb

from stage_worker.models.objective import Objective
from stage_worker.models.skeleton import Skeleton, build_skeleton
from stage_worker.models.variants import most_positions
from stage_worker.rehearsal import Rehearsal, Rehearsed

_MOST_WIDTH = 128
_MOST_LAYERS, _FEW_LAYERS = 64, 4
"""Layers of the largest model that is looked at whole, and those that a larger one is looked at with."""
_ROWS = (2, 3)  # of a single row some kernels copy what they only view of several
_FIGURES = ("forward_operations", "activation_bytes", "waiting_bytes")

_Runs = Mapping[tuple[int, int], Rehearsed]
"""By rows and width."""
_Size = tuple[Fraction, ...]
"""Coefficients in the order of ``pb.MicrobatchSize``."""
_Sizes = tuple[_Size, ...]
"""In the order of ``_FIGURES``."""


def model_parts(config: Any, objective: Objective, *, dtype: torch.dtype) -> pb.ModelParts:
    """Return the parts of the model of a config that is fitted to its task; takes seconds, however many layers it has.

    Args:
        config: of the whole model.
        objective: decides head and loss.
        dtype: what layers compute in.

    Raises:
        UnsupportedModelError: as ``build_skeleton``.
    """
    num_layers = config.num_hidden_layers
    if num_layers > _MOST_LAYERS and not hasattr(config, "num_hidden_groups"):  # whose groups share weights
        parts = model_parts(_with_few_layers(config), objective, dtype=dtype)
        for shared in parts.shared:
            shared.blocks[:] = [num_layers + 1 if block > _FEW_LAYERS else block for block in shared.blocks]
        return parts
    skeleton = build_skeleton(config, objective)
    rehearsal = Rehearsal(skeleton, config, dtype=dtype)
    top = min(most_positions(config), _MOST_WIDTH)
    widths = sorted({top, (top + 1) // 2, (top + 3) // 4})
    head = len(skeleton.blocks) - 1

    def sizes(*indices: int) -> _Sizes:
        shapes = [(rows, width) for rows in _ROWS for width in widths]
        return _sizes({shape: rehearsal.run(indices, rows=shape[0], width=shape[1]) for shape in shapes})

    one = sizes(1)
    # A model of one layer is one stage, so it does not matter which of the two has what both need.
    layer = _less(sizes(1, 2), one) if head > 2 else one
    parts = pb.ModelParts(
        embeddings=_part(_less(sizes(0, 1), one)),
        layer=_part(layer),
        head=_part(_less(sizes(1, head), one)),
        stage=_part(_less(one, layer)),
    )
    found = _parameters(skeleton)
    own = {used_by[0]: sizes for used_by, sizes in found.items() if len(used_by) == 1}
    # Layers are alike but where groups of them share weights and the last group has one layer only.
    layers = {own.get(layer, (0, 0)) for layer in range(1, head)}
    for block, part in ((0, parts.embeddings), (1, parts.layer), (head, parts.head)):
        if block in own:
            part.parameters, part.tensors = own[block]
    for used_by, (elements, tensors) in found.items():
        if len(used_by) > 1 or (len(layers) > 1 and 0 < used_by[0] < head):
            parts.shared.add(parameters=elements, tensors=tensors, blocks=used_by)
    return parts


def _with_few_layers(config: Any) -> Any:
    """Return the config of the same model with a few of its layers, for all are alike."""
    few = copy.deepcopy(config)
    few.num_hidden_layers = _FEW_LAYERS
    if getattr(few, "layer_types", None) is not None:
        few.layer_types = few.layer_types[:_FEW_LAYERS]
    return few


def _parameters(skeleton: Skeleton) -> dict[tuple[int, ...], tuple[int, int]]:
    """Return elements and tensors of the parameters that some block uses, by these blocks."""
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for name in skeleton.uses.names:
        used_by = skeleton.uses.blocks_of(name)
        if used_by:
            elements, tensors = found.get(used_by, (0, 0))
            found[used_by] = elements + skeleton.model.get_parameter(name).numel(), tensors + 1
    return found


def _sizes(runs: _Runs) -> _Sizes:
    """Return each figure as what depends on rows and on the square of the width at most; exact, for that is what is."""
    widths = sorted({width for _, width in runs})

    def size(figure: str) -> _Size:
        few, more = ([getattr(runs[rows, width], figure) for width in widths] for rows in _ROWS)
        of_row = _through(widths, [b - a for a, b in zip(few, more, strict=True)])
        fixed = _through(widths, [3 * a - 2 * b for a, b in zip(few, more, strict=True)])
        return (*fixed, *of_row)

    return tuple(size(figure) for figure in _FIGURES)


def _through(xs: list[int], ys: list[int]) -> _Size:
    """Return constant, linear and quadratic coefficient of the curve of least degree through one to three points."""
    total = [Fraction(0)] * 3
    for x, y in zip(xs, ys, strict=True):
        # Lagrange: y times the product of (X - other) / (x - other)
        term = [Fraction(y)]
        for other in xs:
            if other != x:
                shifted = [Fraction(0), *term]
                term = [a - other * b for a, b in zip(shifted, [*term, Fraction(0)], strict=True)]
                term = [each / (x - other) for each in term]
        total = [a + b for a, b in zip(total, [*term, *[Fraction(0)] * (3 - len(term))], strict=True)]
    return tuple(total)


def _less(whole: _Sizes, part: _Sizes) -> _Sizes:
    return tuple(tuple(a - b for a, b in zip(one, other, strict=True)) for one, other in zip(whole, part, strict=True))


def _part(sizes: _Sizes) -> pb.ModelPart:
    names = [field.name for field in pb.MicrobatchSize.DESCRIPTOR.fields]
    forward, activations, waiting = (
        pb.MicrobatchSize(**dict(zip(names, map(float, size), strict=True))) for size in sizes
    )
    return pb.ModelPart(forward_operations=forward, activation_bytes=activations, waiting_bytes=waiting)
