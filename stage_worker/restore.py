"""The state that an attempt goes on from: which files hold it, and how an engine gets it back."""

from dataclasses import dataclass
from pathlib import Path

from takt.v1 import workers_pb2 as pb

from stage_worker.engine.agreed import Agreed
from stage_worker.engine.engine import Engine
from stage_worker.models.tensor_files import TensorFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """A complete checkpoint; the coordinator has checked its digests."""

    step: int
    parameters: tuple[str, ...]
    """Names of the files that hold parameters."""
    optimizer: tuple[str, ...]
    """Names of the files that hold the optimizer's state."""
    agreed: Agreed

    @classmethod
    def of(cls, message: pb.Checkpoint) -> "SavedState":
        """Return what a message says.

        Raises:
            ValueError: a file's name leads out of the checkpoint's folder.
        """
        for name in (*message.parameters, *message.optimizer):
            if Path(name).name != name:
                raise ValueError(f"{name!r} is no name of a checkpoint's file")
        agreed = message.agreed
        return cls(
            step=message.step,
            parameters=tuple(message.parameters),
            optimizer=tuple(message.optimizer),
            agreed=Agreed(
                updates_applied=agreed.updates_applied,
                loss_scale=agreed.loss_scale if agreed.HasField("loss_scale") else None,
                clean_steps=agreed.clean_steps,
            ),
        )


def encode_agreed(agreed: Agreed) -> pb.AgreedState:
    """Return the message of what all workers have alike."""
    return pb.AgreedState(
        updates_applied=agreed.updates_applied, loss_scale=agreed.loss_scale, clean_steps=agreed.clean_steps
    )


def restore_engine(engine: Engine, folder: Path, saved: SavedState) -> None:
    """Give an engine back the optimizer's state of its own parameters, whatever stages wrote it.

    Args:
        engine: its model was loaded from the same checkpoint.
        folder: of the checkpoint.
        saved: what it holds.

    Raises:
        WeightsError: a file cannot be read, or two hold the same tensor.
        RestoreError: a tensor is missing or of another shape.
    """
    with TensorFiles.of(folder, saved.optimizer) as files:
        engine.restore(saved.agreed, lambda name: files.read(name) if name in files else None)
