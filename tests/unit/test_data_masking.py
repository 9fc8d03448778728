"""Which tokens masked_lm hides, and what stands in their place."""

import hashlib

import numpy as np
import pytest

from dataloader_svc.demo import demo_splits
from dataloader_svc.grid import Grid
from dataloader_svc.masking import IGNORED, Masking
from dataloader_svc.splits import SplitName
from dataloader_svc.targets import target_of
from dataloader_svc.tokens import open_tokenizer
from dataloader_svc.vocabulary import MASK_TOKEN, SPECIAL_TOKENS
from tests.data_jobs import settings
from tests.unit.data_rows import MASK, masking

Hidden = tuple[list[list[int]], list[list[int]]]
FRAME = 90
"""A token that is not maskable."""


def hide(how: Masking, rows: dict[int, list[int]], *, pass_name: str = "epoch 0", width: int = 0) -> Hidden:
    """Return the seen ids and the labels of these rows by number, cut back to each row's own length."""
    width = max(width, *map(len, rows.values()))
    ids = np.array([[*row, *[FRAME] * (width - len(row))] for row in rows.values()])
    seen, labels = how.hide(ids, ids < FRAME, row_ids=np.array(list(rows)), pass_name=pass_name)
    assert (seen[ids >= FRAME] == ids[ids >= FRAME]).all()
    assert (labels[ids >= FRAME] == IGNORED).all()
    cut = [slice(len(row)) for row in rows.values()]
    return (
        [row[part].tolist() for row, part in zip(seen, cut, strict=True)],
        [row[part].tolist() for row, part in zip(labels, cut, strict=True)],
    )


def devlin(how: Masking, row: list[int], *, number: int, pass_name: str) -> tuple[list[int], list[int]]:
    """Hide tokens of one row, one token after the other, as the paper words it."""
    maskable = [place for place, token in enumerate(row) if token < FRAME]
    text = f"masks, seed {how.seed}, {pass_name}, row {number}"
    state = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=32).digest(), dtype="<u4")
    generator = np.random.RandomState(state)
    order, fate, which = [[generator.random_sample() for _ in maskable] for _ in range(3)]
    wanted = min(len(maskable), max(1, round(how.probability * len(maskable))))
    seen, labels = list(row), [IGNORED] * len(row)
    for index in sorted(range(len(maskable)), key=order.__getitem__)[:wanted]:
        place = maskable[index]
        labels[place] = row[place]
        if fate[index] < 0.8:
            seen[place] = how.mask_token_id
        elif fate[index] < 0.9:
            seen[place] = int(how.replacement_ids_V[int(which[index] * len(how.replacement_ids_V))])
    return seen, labels


@pytest.mark.parametrize(
    ("probability", "num_maskable", "chosen"),
    [
        *((0.15, 0, 0), (0.15, 1, 1), (0.15, 3, 1), (0.15, 9, 1), (0.15, 11, 2), (0.15, 60, 9), (0.15, 126, 19)),
        *((0.5, 1, 1), (0.5, 5, 2), (0.5, 7, 4), (1.0, 0, 0), (1.0, 7, 7), (1e-9, 500, 1)),
    ],
)
def test_num_chosen_is_the_rounded_share_and_at_least_one(probability: float, num_maskable: int, chosen: int) -> None:
    assert masking(probability=probability).num_chosen(np.array([num_maskable])).tolist() == [chosen]


def test_hide_everything_labels_each_maskable_token_with_itself() -> None:
    _, labels = hide(masking(probability=1), {4: [91, 3, 5, 7, 92, 3, 92]})

    assert labels == [[IGNORED, 3, 5, 7, IGNORED, 3, IGNORED]]


def test_hide_rows_without_a_maskable_token_stay() -> None:
    assert hide(masking(probability=1), {0: [], 1: [91, 92], 2: [91]}) == (
        [[], [91, 92], [91]],
        [[], [IGNORED] * 2, [IGNORED]],
    )


def test_hide_a_row_s_only_maskable_token_is_always_chosen() -> None:
    labels = [hide(masking(), {row: [91, 8, 92]})[1] for row in range(20)]

    assert labels == [[[IGNORED, 8, IGNORED]]] * 20


def test_hide_equals_the_paper_token_by_token() -> None:
    generator = np.random.RandomState(3)
    rows = {
        int(number): [91, *generator.randint(0, 40, size=generator.randint(0, 30)).tolist(), 92]
        for number in generator.permutation(200)
    }

    for probability in (0.15, 0.4):
        how = masking(probability=probability)
        seen, labels = hide(how, rows, pass_name="split validation")
        expected = [devlin(how, row, number=number, pass_name="split validation") for number, row in rows.items()]
        assert list(zip(seen, labels, strict=True)) == expected


def test_hide_of_a_row_never_changes() -> None:
    # Recorded once: a checkpoint written today continues with the same masks after any upgrade.
    # Of 3, 4, 6, 15 and 16 one stays and one becomes another word.
    (seen,), (labels,) = hide(masking(probability=0.25), {7: [91, *range(20), 92]}, pass_name="epoch 3")

    assert seen == [91, 0, 1, 2, MASK, 4, 5, 8, 7, 8, 9, 10, 11, 12, 13, 14, MASK, MASK, 17, 18, 19, 92]
    assert {at: label for at, label in enumerate(labels) if label != IGNORED} == {4: 3, 5: 4, 7: 6, 16: 15, 17: 16}


def test_hide_of_a_row_is_alike_in_any_company_order_and_width() -> None:
    rows = {number: [91, *range(number, 30), 92] for number in range(12)}
    alone = {number: hide(masking(), {number: row}) for number, row in rows.items()}

    for order in (list(rows), list(rows)[::-1], [5, 0, 11]):
        seen, labels = hide(masking(), {number: rows[number] for number in order}, width=64)
        assert [([seen[at]], [labels[at]]) for at in range(len(order))] == [alone[number] for number in order]


def test_hide_differs_from_pass_to_pass_row_to_row_and_seed_to_seed() -> None:
    row = [91, *range(40), 92]

    hidden = [
        str(hide(masking(seed=seed), {number: row}, pass_name=pass_name))
        for seed in (1, 2)
        for number in (0, 1)
        for pass_name in ("epoch 0", "epoch 1", "split train", "split validation")
    ]

    assert len(set(hidden)) == 16


def test_hide_leaves_its_input_as_it_is() -> None:
    ids = np.arange(20)[None]

    masking(probability=1).hide(ids, ids < 20, row_ids=np.array([0]), pass_name="epoch 0")

    assert ids.tolist() == [list(range(20))]


def test_hide_demo_has_the_shares_of_the_paper() -> None:
    rows = open_tokenizer(None).tokenise(demo_splits()[SplitName.TRAIN], max_length=32)
    target = target_of(settings({"train.objective": "masked_lm"}), rows)
    every_row = np.arange(rows.num_rows)
    grid = Grid.of(rows.starts[:-1], rows.lengths_of(every_row), width=32)
    seen_BL, labels_BL = target.columns(every_row, grid, pass_name="epoch 0")
    assert labels_BL is not None
    true, maskable = rows.input_ids_T, ~rows.special_T
    seen_T, labels_T = seen_BL[grid.mask_BL], labels_BL[grid.mask_BL]

    chosen = labels_T != IGNORED
    num_chosen, num_maskable = int(chosen.sum()), int(maskable.sum())
    assert num_chosen == sum(min(n, max(1, round(0.15 * n))) for n in rows.num_maskable_N.tolist())
    assert abs(num_chosen / num_maskable - 0.15) < 0.015  # short rows: rounding moves the share a little
    masked, kept = chosen & (seen_T == SPECIAL_TOKENS.index(MASK_TOKEN)), chosen & (seen_T == true)
    other = chosen & ~masked & ~kept
    # Binomial, 4 standard deviations; one random id in 91 is the true one.
    for count, share in ((masked.sum(), 0.8), (kept.sum(), 0.1 + 0.1 / 91), (other.sum(), 0.1 * 90 / 91)):
        assert abs(count / num_chosen - share) < 4 * (share * (1 - share) / num_chosen) ** 0.5
    assert set(seen_T[other].tolist()) <= set(range(5, 96))
    assert (labels_T[chosen] == true[chosen]).all()
    assert (seen_T[~chosen] == true[~chosen]).all()
