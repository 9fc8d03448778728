"""Whether a pretrained folder holds what a model needs, by the headers of its files; values are read of ties only."""

from collections.abc import Sequence

import torch

from stage_worker.models.skeleton import Skeleton
from stage_worker.models.tensor_files import WeightsError
from stage_worker.models.weights import WeightsFolder

_MOST_NAMED = 3
_ELEMENT_TYPES = ("F64", "F32", "F16", "BF16")
"""What tensors may be stored as. The numbers of quantised ones mean nothing without scales, which no family reads."""


def check_coverage(skeleton: Skeleton, blocks: Sequence[int], weights: WeightsFolder) -> None:
    """Refuse a folder that a model cannot be filled from.

    Args:
        skeleton: of the whole model.
        blocks: what of it is to be filled, by place.
        weights: of the folder.

    Raises:
        WeightsError: a tensor is missing, of another shape, quantised, or other than one that it is tied to; names it.
            A checkpoint must hold everything, and nothing that the model does not have.
    """
    if weights.is_checkpoint:
        _check_foreign(skeleton, weights)
    paths = {name: stored_path(skeleton, weights, name) for name in skeleton.uses.names_in(blocks)}
    missing = [
        name
        for name, path in paths.items()
        if path is None and (weights.is_checkpoint or not skeleton.may_be_new(name))
    ]
    if missing:
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        raise WeightsError(
            f"{weights.folder} lacks {', '.join(missing[:_MOST_NAMED])}{more}; "
            f"it is not a whole {skeleton.family.model_type}"
        )
    for name, path in paths.items():
        if path is not None and (stored := weights.element_type(path)) not in _ELEMENT_TYPES:
            raise WeightsError(
                f"{name} is stored as {stored} in {weights.folder}, need one of {', '.join(_ELEMENT_TYPES)}; "
                "save the model again without quantisation"
            )
        needed = tuple(skeleton.model.get_parameter(name).shape)
        if path is not None and (found := weights.shape(path)) != needed:
            raise WeightsError(
                f"{name} has shape {found} in {weights.folder}, the model of its config.json needs {needed}"
            )
    _check_ties(skeleton, blocks, weights)


def stored_path(skeleton: Skeleton, weights: WeightsFolder, name: str) -> str | None:
    """Return where the folder has a parameter; some files hold a tied one under another of its names only."""
    return next((path for path in skeleton.uses.paths_of(name) if weights.has(path)), None)


def _check_foreign(skeleton: Skeleton, weights: WeightsFolder) -> None:
    known = skeleton.model.state_dict(keep_vars=True).keys()
    foreign = sorted(weights.names - known)
    if foreign:
        more = f" and {len(foreign) - _MOST_NAMED} more" if len(foreign) > _MOST_NAMED else ""
        raise WeightsError(
            f"{weights.folder} holds {', '.join(foreign[:_MOST_NAMED])}{more}, which this model does not have; "
            "the checkpoint is that of another one"
        )


def _check_ties(skeleton: Skeleton, blocks: Sequence[int], weights: WeightsFolder) -> None:
    # The library leaves the tie out then, whatever its config says.
    aliases = {path: name for index in blocks for path, name in skeleton.uses.by_block[index].items() if path != name}
    for path, name in aliases.items():
        if weights.has(path) and weights.has(name) and not torch.equal(weights.read(path), weights.read(name)):
            raise WeightsError(
                f"{weights.folder} has different values for {path} and {name}, which its config ties; "
                "set tie_word_embeddings to false in its config.json, or leave one of them out"
            )
