"""What travels between two workers, byte by byte, and what is refused of it."""

import struct

import pytest
import torch

from stage_worker.comm_gloo import tag_of
from stage_worker.comm_message import TRAILER_BYTES, buffer_for, pack, trailer_of, unpack, verify
from stage_worker.engine.commands import Phase
from stage_worker.engine.transport import Message, TransferError, TransferKind

CPU = torch.device("cpu")


def message(
    *,
    phase: Phase = Phase.TRAIN,
    step: int = 7,
    kind: TransferKind = TransferKind.GRADIENT,
    boundary: int = 2,
    microbatch: int = 5,
    shape: tuple[int, ...] = (2, 3),
    dtype: torch.dtype = torch.float32,
) -> Message:
    return Message(
        phase=phase, step=step, kind=kind, boundary=boundary, microbatch=microbatch, shape=shape, dtype=dtype
    )


def test_pack_is_the_tensor_then_the_trailer() -> None:
    packed = bytes(pack(torch.arange(6.0).view(2, 3), message()).tolist())
    assert packed[:24] == struct.pack("<6f", 0, 1, 2, 3, 4, 5)
    assert packed[24:] == b"TAKT" + bytes([0, 1, 0, 2]) + struct.pack("<7I", 7, 2, 5, 2, 3, 0, 0)
    assert len(packed[24:]) == TRAILER_BYTES


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_pack_and_unpack_keep_the_bits_of_any_layout(dtype: torch.dtype) -> None:
    tensor = torch.randn(4, 2, 3).to(dtype).transpose(0, 1)
    announced = message(shape=(2, 4, 3), dtype=dtype)
    packed = pack(tensor, announced)
    verify(trailer_of(packed), announced)
    assert torch.equal(unpack(packed, announced), tensor)


def test_pack_copies_and_keeps_no_graph() -> None:
    tensor = torch.zeros(2, 3, requires_grad=True)
    packed = pack(tensor * 2, message())
    assert not packed.requires_grad
    assert unpack(packed, message()).data_ptr() == packed.data_ptr()


def test_buffer_has_room_for_the_message_and_a_blank_trailer() -> None:
    buffer = buffer_for(message(), device=CPU)
    assert buffer.numel() == 24 + TRAILER_BYTES
    assert not buffer[24:].any()


@pytest.mark.parametrize(
    "other",
    [
        {"phase": Phase.EVALUATE},
        {"step": 8},
        {"kind": TransferKind.ACTIVATION},
        {"boundary": 3},
        {"microbatch": 6},
        {"shape": (3, 2)},
        {"shape": (2, 3, 1)},
        {"shape": (1, 3), "dtype": torch.float64},
    ],
    ids=str,
)
def test_verify_refuses_a_message_that_differs_in_anything(other: dict) -> None:
    arrived = message(**other)
    packed = pack(torch.zeros(arrived.shape, dtype=arrived.dtype), arrived)
    with pytest.raises(TransferError) as caught:
        verify(trailer_of(packed), message())
    announced, found = str(caught.value).split(" was announced, but ")
    assert "gradient of train step 7, microbatch 5, boundary 2, shape (2, 3), torch.float32" in announced
    assert found != announced
    assert found.endswith(" arrived")


def test_verify_refuses_a_shorter_message() -> None:
    buffer = buffer_for(message(), device=CPU)
    short = pack(torch.zeros(1, 3), message(shape=(1, 3)))
    buffer[: short.numel()] = short  # as Gloo leaves it: success, the rest untouched
    with pytest.raises(TransferError, match="a shorter message arrived"):
        verify(trailer_of(buffer), message())


@pytest.mark.parametrize("tensor", [torch.zeros(2, 4), torch.zeros(2, 3, 1), torch.zeros(2, 3, dtype=torch.float64)])
def test_pack_refuses_what_was_not_announced(tensor: torch.Tensor) -> None:
    with pytest.raises(TransferError, match="was computed"):
        pack(tensor, message())


def test_tags_fit_31_bits_and_differ_for_everything_in_flight_at_once() -> None:
    messages = [
        message(phase=phase, step=step, kind=kind, boundary=boundary, microbatch=microbatch)
        for phase in Phase
        for step in (1, 2, 1023)
        for kind in TransferKind
        for boundary in (0, 1, 511)
        for microbatch in (0, 1, 1023)
    ]
    tags = [tag_of(each) for each in messages]
    assert len(set(tags)) == len(tags)
    assert min(tags) >= 0
    assert max(tags) < 1 << 31
    assert tag_of(message(step=10**9)) < 1 << 31
