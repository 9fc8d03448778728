"""Adding the gradients of all replicas."""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

BUCKET_ELEMENTS = 1 << 20
"""Elements that one exchange carries at most, unless one parameter has more; 4 MiB in fp32."""


def add_over_replicas(parameters: Mapping[str, nn.Parameter], add: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Replace each gradient by the sum over the replicas; a missing one counts as zero.

    Every replica of a stage passes the same parameters in the same order, so the buckets
    are the same; each element is added in rank order, so all replicas get the same bits.

    Args:
        parameters: by name, in canonical order.
        add: returns the sum of the replicas' vectors.
    """
    trained = {name: p for name, p in parameters.items() if p.requires_grad}
    for bucket in _buckets(trained):
        pieces = [p.grad if p.grad is not None else torch.zeros_like(p) for p in bucket]
        total = add(torch.cat([piece.reshape(-1) for piece in pieces]))
        for parameter, part in zip(bucket, torch.split(total, [p.numel() for p in bucket]), strict=True):
            parameter.grad = part.view_as(parameter)


def _buckets(parameters: Mapping[str, nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    bucket: list[nn.Parameter] = []
    elements = 0
    for parameter in parameters.values():
        if bucket and elements + parameter.numel() > BUCKET_ELEMENTS:
            yield bucket
            bucket, elements = [], 0
        bucket.append(parameter)
        elements += parameter.numel()
    if bucket:
        yield bucket
