"""The places of a microbatch's tokens in its dense columns. Pure.

B rows, L positions of their width, T tokens of the split that they come from.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of a split side by side, padded on the right."""

    mask_BL: npt.NDArray[np.bool_]
    """Whether a position holds a token."""
    tokens: npt.NDArray[np.int64]
    """Index in the split of each position that holds one, row after row."""

    @classmethod
    def of(cls, starts_B: npt.NDArray[np.int64], lengths_B: npt.NDArray[np.int64], *, width: int) -> "Grid":
        """Return the grid of rows that begin at ``starts_B`` in their split; no row is longer than ``width``."""
        positions_L = np.arange(width)
        mask_BL = positions_L < lengths_B[:, None]
        return cls(mask_BL, (starts_B[:, None] + positions_L)[mask_BL])

    def fill(self, values_T: npt.NDArray[Any], padding: int) -> npt.NDArray[np.int64]:
        """Return one value of the split a token, ``padding`` elsewhere; shape (B, L)."""
        values_BL = np.full(self.mask_BL.shape, padding, dtype=np.int64)
        values_BL[self.mask_BL] = values_T[self.tokens]
        return values_BL
