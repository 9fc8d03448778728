"""Tokenised rows as the bytes of one file: a seal, then safetensors. Pure."""

import hashlib

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from dataloader_svc.tokens import TokenisedRows

SEAL_BYTES = 32


class DamagedError(ValueError):
    """The bytes are not what was sealed under this name."""


def pack(rows: TokenisedRows, *, name: str) -> bytes:
    """Return the bytes of a file of this name; what is None is left out of it."""
    columns: dict[str, npt.NDArray[np.generic] | None] = {
        "input_ids_T": rows.input_ids_T,
        "token_types_T": rows.token_types_T,
        "special_T": rows.special_T,
        "starts": rows.starts,
        "labels_N": rows.labels_N,
        "pad_token_id": np.array(rows.pad_token_id),
        "mask_token_id": None if rows.mask_token_id is None else np.array(rows.mask_token_id),
        "ordinary_ids_V": rows.ordinary_ids_V,
        "digest": np.frombuffer(rows.digest.encode(), dtype=np.uint8),
    }
    content: bytes = save({key: np.ascontiguousarray(values) for key, values in columns.items() if values is not None})
    return _seal(content, name) + content


def unpack(sealed: bytes, *, name: str) -> TokenisedRows:
    """Return the rows that were packed under this name; their arrays cannot be written to.

    Raises:
        DamagedError: a byte has changed, or they were packed under another name.
    """
    content = sealed[SEAL_BYTES:]
    if sealed[:SEAL_BYTES] != _seal(content, name):
        raise DamagedError(f"its {len(sealed)} bytes are not those that were written for {name}")
    columns = load(content)
    mask_token_id = columns.get("mask_token_id")
    return TokenisedRows(
        input_ids_T=columns["input_ids_T"],
        token_types_T=columns["token_types_T"],
        special_T=columns["special_T"],
        starts=columns["starts"],
        labels_N=columns.get("labels_N"),
        pad_token_id=columns["pad_token_id"].item(),
        mask_token_id=None if mask_token_id is None else mask_token_id.item(),
        ordinary_ids_V=columns["ordinary_ids_V"],
        digest=columns["digest"].tobytes().decode(),
    )


def _seal(content: bytes, name: str) -> bytes:
    return hashlib.blake2b(content, key=name.encode(), digest_size=SEAL_BYTES).digest()
