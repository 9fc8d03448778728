"""Reads single tensors of a Hugging Face folder, by whatever names it stores them."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

from stage_worker.models.tensor_files import TensorFiles, WeightsError

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


class WeightsFolder:
    """The tensors of a local model folder; each is read only when it is asked for. Use as a context manager.

    Only safetensors are ever opened: other formats can run code.
    """

    def __init__(self, folder: Path, *, base_prefix: str, shards: Sequence[str] | None = None) -> None:
        """List the tensors of ``folder``.

        Args:
            folder: holds ``model.safetensors``, or an index and its shards.
            base_prefix: what files of the bare model leave out at the front of names.
            shards: names of the files of a checkpoint, which is what the folder holds then; else None.

        Raises:
            WeightsError: there are no safetensors, the index is broken, or a shard is.
        """
        self.folder = folder
        self.is_checkpoint = shards is not None
        """Whether it holds the whole state of a model in training, by its own names."""
        self._base_prefix = base_prefix + "."
        self._files = TensorFiles.of(folder, shards) if shards is not None else _files_of(folder)

    def __enter__(self) -> Self:
        """Keep files open until the block ends."""
        self._files.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self._files.__exit__(kind, error, trace)

    @property
    def names(self) -> frozenset[str]:
        """Names of all tensors, as they are stored."""
        return frozenset(self._files)

    def has(self, name: str) -> bool:
        """Whether the folder stores the parameter ``name`` of a model."""
        return self._stored(name) is not None

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the parameter ``name`` of a model, without reading its values.

        Raises:
            WeightsError: it is not there, or its file is damaged.
        """
        return self._files.shape(self._stored_or_raise(name))

    def element_type(self, name: str) -> str:
        """Return what the file calls the type of the elements of the parameter ``name``, such as ``BF16``.

        Raises:
            WeightsError: it is not there, or its file is damaged.
        """
        return self._files.element_type(self._stored_or_raise(name))

    def read(self, name: str) -> torch.Tensor:
        """Return the parameter ``name`` of a model, on the CPU.

        Raises:
            WeightsError: it is not there, or its file is damaged.
        """
        return self._files.read(self._stored_or_raise(name))

    def _stored_or_raise(self, name: str) -> str:
        stored = self._stored(name)
        if stored is None:
            raise WeightsError(f"{self.folder} has no tensor for {name}")
        return stored

    def _stored(self, name: str) -> str | None:
        return next((candidate for candidate in self._candidates(name) if candidate in self._files), None)

    def _candidates(self, name: str) -> Iterator[str]:
        for known in (name, name.removeprefix(self._base_prefix)):
            yield known
            # Files made before 2019 call the parameters of LayerNorm so.
            if known.endswith("LayerNorm.weight"):
                yield known.removesuffix("weight") + "gamma"
            if known.endswith("LayerNorm.bias"):
                yield known.removesuffix("bias") + "beta"


def _files_of(folder: Path) -> TensorFiles:
    if (folder / _SINGLE).is_file():
        return TensorFiles.of(folder, [_SINGLE])
    if (folder / _INDEX).is_file():
        return TensorFiles(folder, _read_index(folder))
    pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
    if pickled:
        raise WeightsError(
            f"{folder} holds {', '.join(pickled)} but no {_SINGLE}; such files can run code and are never opened: "
            "save the model again with save_pretrained, which writes safetensors"
        )
    raise WeightsError(f"{folder} has neither {_SINGLE} nor {_INDEX}")


def _read_index(folder: Path) -> dict[str, str]:
    try:
        files = dict(json.loads((folder / _INDEX).read_text())["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"{folder / _INDEX} is no index of safetensors: {error}") from error
    for file in sorted({str(file) for file in files.values()}):
        if Path(file).name != file:
            raise WeightsError(f"{folder / _INDEX} names {file}, which is outside the folder")
        if not (folder / file).is_file():
            raise WeightsError(f"{folder / _INDEX} names {file}, which does not exist")
    return files
