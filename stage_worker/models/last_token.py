"""The position that a decoder classifies a row by.

B rows, L positions, C classes.
"""

import torch


def at_last_token(logits_BLC: torch.Tensor, input_ids_BL: torch.Tensor, *, pad_token_id: int) -> torch.Tensor:
    """Return the logits of each row's last token that is not the pad id, shape (B, C).

    By ids and not by the mask, as in the library: a row that ends in tokens with the pad id is read before them,
    and one that has nothing else at its first position.
    """
    device = logits_BLC.device
    positions_L = torch.arange(input_ids_BL.shape[1], device=device, dtype=torch.int32)
    last_B = (positions_L * (input_ids_BL != pad_token_id)).argmax(-1)
    return logits_BLC[torch.arange(logits_BLC.shape[0], device=device), last_B]
