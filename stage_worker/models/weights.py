"""Reads single tensors of a Hugging Face folder, by whatever names it stores them."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


class WeightsError(ValueError):
    """Weights that a model cannot be filled with."""


class WeightsFolder:
    """The tensors of a local model folder; each is read only when it is asked for. Use as a context manager.

    Only safetensors are ever opened: other formats can run code.
    """

    def __init__(self, folder: Path, *, base_prefix: str) -> None:
        """List the tensors of ``folder``.

        Args:
            folder: holds ``model.safetensors``, or an index and its shards.
            base_prefix: what files of the bare model leave out at the front of names.

        Raises:
            WeightsError: there are no safetensors, or the index is broken.
        """
        self.folder = folder
        self._base_prefix = base_prefix + "."
        self._files = _files_by_tensor(folder)
        self._open: dict[str, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Keep files open until the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self._open.clear()
        self._stack.close()

    def has(self, name: str) -> bool:
        """Whether the folder stores the parameter ``name`` of a model."""
        return self._stored(name) is not None

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the parameter ``name`` of a model, without reading its values.

        Raises:
            WeightsError: it is not there, or its file is damaged.
        """
        stored = self._stored_or_raise(name)
        with self._reading(stored) as file:
            return tuple(file.get_slice(stored).get_shape())

    def element_type(self, name: str) -> str:
        """Return what the file calls the type of the elements of the parameter ``name``, such as ``BF16``.

        Raises:
            WeightsError: it is not there, or its file is damaged.
        """
        stored = self._stored_or_raise(name)
        with self._reading(stored) as file:
            return str(file.get_slice(stored).get_dtype())

    def read(self, name: str) -> torch.Tensor:
        """Return the parameter ``name`` of a model, on the CPU.

        Raises:
            WeightsError: it is not there, or its file is damaged.
        """
        stored = self._stored_or_raise(name)
        with self._reading(stored) as file:
            tensor: torch.Tensor = file.get_tensor(stored)
        return tensor

    @contextmanager
    def _reading(self, stored: str) -> Iterator[Any]:
        file = self._files[stored]
        try:
            yield self._file(file)
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"{self.folder / file} cannot be read: {error}") from error

    def _stored_or_raise(self, name: str) -> str:
        stored = self._stored(name)
        if stored is None:
            raise WeightsError(f"{self.folder} has no tensor for {name}")
        return stored

    def _file(self, name: str) -> Any:
        if name not in self._open:
            self._open[name] = self._stack.enter_context(safe_open(self.folder / name, framework="pt"))
        return self._open[name]

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


def _files_by_tensor(folder: Path) -> dict[str, str]:
    if (folder / _SINGLE).is_file():
        try:
            with safe_open(folder / _SINGLE, framework="pt") as file:
                return dict.fromkeys(file.keys(), _SINGLE)
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"{folder / _SINGLE} cannot be read: {error}") from error
    if (folder / _INDEX).is_file():
        return _read_index(folder)
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
