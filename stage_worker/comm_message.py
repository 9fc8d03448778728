"""One transfer as bytes: the tensor, then a fixed trailer that says what it is.

The trailer stands at the end because Gloo takes a message that is too short for
success and leaves the rest of the buffer as it was: a short message has no trailer
where the receiver looks for one.
"""

import math
import struct

import torch

from stage_worker.engine.commands import Phase
from stage_worker.engine.transport import Message, TransferError, TransferKind

_TRAILER = struct.Struct("<4sBBBBIII4I")
_MAGIC = b"TAKT"
_MAX_AXES = 4
TRAILER_BYTES = _TRAILER.size

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_PHASES = (Phase.TRAIN, Phase.EVALUATE)


def pack(tensor: torch.Tensor, message: Message) -> torch.Tensor:
    """Return a copy of ``tensor`` with its trailer, as bytes on the tensor's device.

    Raises:
        TransferError: the tensor is not what ``message`` announces.
    """
    if tuple(tensor.shape) != message.shape or tensor.dtype != message.dtype:
        raise TransferError(
            f"{describe(message)} was announced, but shape {tuple(tensor.shape)}, {tensor.dtype} was computed"
        )
    num_bytes = _tensor_bytes(message)
    packed = torch.empty(num_bytes + TRAILER_BYTES, dtype=torch.uint8, device=tensor.device)
    packed[:num_bytes].view(message.dtype).view(message.shape).copy_(tensor.detach())
    packed[num_bytes:].copy_(_trailer(message))
    return packed


def buffer_for(message: Message, *, device: torch.device) -> torch.Tensor:
    """Return room for the bytes of ``message``; its trailer is blank."""
    buffer = torch.empty(_tensor_bytes(message) + TRAILER_BYTES, dtype=torch.uint8, device=device)
    buffer[-TRAILER_BYTES:].zero_()
    return buffer


def unpack(buffer: torch.Tensor, message: Message) -> torch.Tensor:
    """Return the tensor in ``buffer``, not copied and not verified."""
    return buffer[:-TRAILER_BYTES].view(message.dtype).view(message.shape)


def trailer_of(buffer: torch.Tensor) -> torch.Tensor:
    """Return the part of ``buffer`` that ``verify`` wants to see."""
    return buffer[-TRAILER_BYTES:]


def verify(trailer: torch.Tensor, message: Message) -> None:
    """Check that the trailer is that of ``message``.

    Raises:
        TransferError: another message arrived, or a shorter one.
    """
    found = bytes(trailer.tolist())
    if found != bytes(_trailer(message).tolist()):
        raise TransferError(f"{describe(message)} was announced, but {_describe_trailer(found)} arrived")


def describe(message: Message) -> str:
    """Return a message in words."""
    return (
        f"the {message.kind.name.lower().replace('_', ' ')} of {message.phase.name.lower()} step {message.step}, "
        f"microbatch {message.microbatch}, boundary {message.boundary}, shape {message.shape}, {message.dtype}"
    )


def _tensor_bytes(message: Message) -> int:
    return math.prod(message.shape) * message.dtype.itemsize


def _trailer(message: Message) -> torch.Tensor:
    num_axes = len(message.shape)
    packed = _TRAILER.pack(
        _MAGIC,
        _PHASES.index(message.phase),
        message.kind,
        _DTYPES.index(message.dtype),
        num_axes,
        message.step,
        message.boundary,
        message.microbatch,
        *message.shape,
        *[0] * (_MAX_AXES - num_axes),
    )
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def _describe_trailer(trailer: bytes) -> str:
    magic, phase, kind, dtype, num_axes, step, boundary, microbatch, *shape = _TRAILER.unpack(trailer)
    if magic != _MAGIC:
        return "a shorter message"
    return describe(
        Message(
            phase=_PHASES[phase],
            step=step,
            kind=TransferKind(kind),
            boundary=boundary,
            microbatch=microbatch,
            shape=tuple(shape[:num_axes]),
            dtype=_DTYPES[dtype],
        )
    )
