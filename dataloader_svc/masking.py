"""Which tokens of a row masked_lm hides, and what stands in their place. Pure.

B rows, L positions of their width, T maskable tokens in all of them, C chosen
ones, V ids that a token may be replaced by.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IGNORED = -100
"""Label of a position that the loss does not count."""

MASKED_SHARE = 0.8
RANDOM_SHARE = 0.1
"""Shares of the chosen tokens that become the mask token and a random one; the rest stay what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """Hides a share of each row's tokens, as Devlin et al. 2019 (arXiv 1810.04805, section 3.1) do.

    What happens to a row follows from the seed, the pass and the row's number
    alone, so no layout, padding or order of a batch changes it.
    """

    probability: float
    """Share of a row's maskable tokens that is chosen, in (0, 1]."""
    seed: int
    mask_token_id: int
    replacement_ids_V: npt.NDArray[np.int32]
    """Ids that a random token is drawn from."""

    def num_chosen(self, num_maskable_B: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many tokens of each row are chosen: the rounded share, at least one where there is one."""
        rounded_B: npt.NDArray[np.int64] = np.rint(self.probability * num_maskable_B).astype(np.int64)
        return np.minimum(num_maskable_B, np.maximum(rounded_B, 1), dtype=np.int64)

    def hide(
        self,
        input_ids_BL: npt.NDArray[np.int64],
        maskable_BL: npt.NDArray[np.bool_],
        *,
        row_ids: npt.NDArray[np.int64],
        pass_name: str,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the ids that the model sees, and the labels: the true ids of chosen positions, else `IGNORED`.

        ``pass_name`` tells one pass over the rows from the next, as each hides other tokens.
        """
        order_T, fate_T, which_T = self._draws(maskable_BL.sum(axis=1), row_ids=row_ids, pass_name=pass_name)
        order_BL = np.full(maskable_BL.shape, np.inf)  # sorts all else behind the maskable tokens
        order_BL[maskable_BL] = order_T
        rank_BL = order_BL.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        chosen_BL = rank_BL < self.num_chosen(maskable_BL.sum(axis=1))[:, None]
        chosen_T = chosen_BL[maskable_BL]
        fate_C, which_C = fate_T[chosen_T], which_T[chosen_T]

        seen_BL = input_ids_BL.copy()
        random_C = self.replacement_ids_V[(which_C * len(self.replacement_ids_V)).astype(np.int64)]
        kept_C = np.where(fate_C < MASKED_SHARE + RANDOM_SHARE, random_C, input_ids_BL[chosen_BL])
        seen_BL[chosen_BL] = np.where(fate_C < MASKED_SHARE, self.mask_token_id, kept_C)
        return seen_BL, np.where(chosen_BL, input_ids_BL, IGNORED)

    def _draws(
        self, num_maskable_B: npt.NDArray[np.int64], *, row_ids: npt.NDArray[np.int64], pass_name: str
    ) -> npt.NDArray[np.float64]:
        """Return three numbers in [0, 1) a maskable token, shape (3, T): its place in the choice, its fate, its id.

        The stream of `numpy.random.RandomState` is frozen (NEP 19). One object
        is seeded anew for each row: making one costs ten times as much.
        """
        generator = np.random.RandomState(0)
        draws = [np.zeros((3, 0))]
        for row, count in zip(row_ids.tolist(), num_maskable_B.tolist(), strict=True):
            text = f"masks, seed {self.seed}, {pass_name}, row {row}"
            digest = hashlib.blake2b(text.encode(), digest_size=32).digest()
            generator.seed(np.frombuffer(digest, dtype="<u4"))
            draws.append(generator.random_sample((3, count)))
        return np.concatenate(draws, axis=1)
