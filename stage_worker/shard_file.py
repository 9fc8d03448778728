"""Writes a safetensors file a tensor at a time, so that no more than one piece of it is ever in memory.

The format (https://huggingface.co/docs/safetensors, "Format"): eight bytes with the length of a header, the header as
JSON, then the bytes of all tensors without gaps. The library wants all tensors at hand at once.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

_DTYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8

Pieces = Generator[bytes | memoryview, None, None]
"""Bytes in order; closed as soon as no more of them are wanted."""
_PIECE_BYTES = 2**22


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file as it lies on the disk."""

    sha256: str
    num_bytes: int


def write_tensors(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    *,
    metadata: Mapping[str, str],
    pieces: Callable[[str], Pieces],
) -> WrittenFile:
    """Write tensors into ``path``, whole or not at all, after a power cut too; its folder is left to be synced.

    Args:
        path: of the file.
        tensors: names, types and shapes; larger elements come first, then names in order, as the library has it.
        metadata: what else the header says.
        pieces: yields the bytes of a tensor, which ``read_piece`` returns.

    Raises:
        OSError: the file cannot be written; nothing is left of it.
    """
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    return write_pieces(path, _content(tensors, names, metadata, pieces))


def write_pieces(path: Path, content: Pieces) -> WrittenFile:
    """Write pieces into ``path``, whole or not at all.

    Raises:
        OSError: the file cannot be written; nothing is left of it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    digest, num_bytes = hashlib.sha256(), 0
    try:
        with closing(content), temporary.open("wb") as file:
            for piece in content:
                file.write(piece)
                digest.update(piece)
                num_bytes += len(piece)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return WrittenFile(digest.hexdigest(), num_bytes)


def piece_starts(tensor: torch.Tensor) -> range:
    """Return where the pieces of a tensor begin, in elements."""
    return range(0, tensor.numel(), _PIECE_BYTES // tensor.element_size())


def read_piece(tensor: torch.Tensor, start: int) -> memoryview:
    """Return a copy of the bytes of a tensor from an element on, a few MiB of them."""
    piece = tensor.detach().reshape(-1)[start : start + _PIECE_BYTES // tensor.element_size()]
    data: memoryview = piece.to("cpu", copy=True).view(torch.uint8).numpy().data
    return data


def _content(
    tensors: Mapping[str, torch.Tensor],
    names: list[str],
    metadata: Mapping[str, str],
    pieces: Callable[[str], Pieces],
) -> Pieces:
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        tensor = tensors[name]
        start, end = end, end + math.prod(tensor.shape) * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield struct.pack("<Q", len(text)) + text
    for name in names:
        yield from pieces(name)
