"""Parameter shards merged into the files of a plain Hugging Face folder."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from coordinator.cli.exits import CliError, ExitCode

MAX_FILE_BYTES = 5 * 10**9
"""Above this the parameters are spread over several files with an index, as Hugging Face does it."""
_METADATA = {"format": "pt"}
_FILE_MODE = 0o644
"""safetensors writes files that only their owner can read."""


def merge(shards: Sequence[Path], folder: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
    """Write all parameters of ``shards`` into ``folder``: ``model.safetensors``, or several files and an index.

    One output file is held in memory at a time. A parameter that several shards hold, because stages share
    it, is written once.

    Raises:
        CliError: a shard cannot be read, or two shards differ in a parameter that they share.
    """
    try:
        with ExitStack() as stack:
            files = {path: stack.enter_context(safe_open(path, framework="numpy")) for path in shards}
            owners = _owners(files)
            sizes = {name: _size_bytes(files[path], name) for name, path in owners.items()}
            groups = _groups(sizes, max_file_bytes)
            names = _file_names(len(groups))
            for file_name, group in zip(names, groups, strict=True):
                tensors = {name: files[owners[name]].get_tensor(name) for name in group}
                save_file(tensors, folder / file_name, metadata=_METADATA)
                (folder / file_name).chmod(_FILE_MODE)
            if len(groups) > 1:
                _write_index(folder, dict(zip(names, groups, strict=True)), total_bytes=sum(sizes.values()))
    except SafetensorError as error:
        raise CliError(ExitCode.INVALID, f"the checkpoint cannot be read: {error}") from error


def _owners(files: Mapping[Path, Any]) -> dict[str, Path]:
    """Return which shard each parameter is taken from: the first that has it."""
    owners: dict[str, Path] = {}
    for path, file in files.items():
        for name in file.keys():  # noqa: SIM118  (no mapping, it cannot be iterated over)
            owner = owners.setdefault(name, path)
            if owner != path and not np.array_equal(files[owner].get_tensor(name), file.get_tensor(name)):
                message = f"the checkpoint is damaged: {owner.name} and {path.name} differ in {name}, which they share"
                raise CliError(ExitCode.INVALID, message)
    return owners


_ITEM_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "U8": 1, "I8": 1, "BOOL": 1}


def _size_bytes(file: Any, name: str) -> int:
    tensor = file.get_slice(name)
    shape: list[int] = tensor.get_shape()
    return math.prod(shape) * _ITEM_BYTES[tensor.get_dtype()]


def _groups(sizes: Mapping[str, int], max_bytes: int) -> list[list[str]]:
    """Return the names in order, cut wherever a file would grow past ``max_bytes``."""
    groups: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if groups[-1] and filled + size > max_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += size
    return groups


def _file_names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]


def _write_index(folder: Path, groups: Mapping[str, Sequence[str]], *, total_bytes: int) -> None:
    weight_map = {name: file_name for file_name, group in groups.items() for name in group}
    index = {"metadata": {"total_size": total_bytes}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
