"""The built-in task."""

import hashlib
from collections.abc import Callable

from dataloader_svc.demo import NEGATIONS, NEGATIVE, NUM_ROWS, POSITIVE, demo_splits, demo_words
from dataloader_svc.splits import SplitName, SplitRows
from dataloader_svc.tokens import open_tokenizer
from dataloader_svc.vocabulary import SPECIAL_TOKENS, UNKNOWN_TOKEN


def keyword_rule(sentence: str) -> int:
    """Judge by the adjective alone."""
    return int(any(word in POSITIVE for word in sentence.split()))


def whole_rule(sentence: str) -> int:
    """Judge by the adjective and whether it is negated."""
    words = sentence.split()
    negated = any(word in NEGATIONS for word in words)
    return int(any(word in POSITIVE for word in words) != negated)


def accuracy(rows: SplitRows, judge: Callable[[str], int]) -> float:
    assert rows.labels is not None
    return sum(judge(text) == label for text, label in zip(rows.first, rows.labels, strict=True)) / len(rows)


def test_demo_splits_have_their_rows_and_labels() -> None:
    splits = demo_splits()

    assert {split: len(rows) for split, rows in splits.items()} == NUM_ROWS
    assert [splits[split].labels is None for split in NUM_ROWS] == [False, False, True]


def test_demo_sentences_stand_in_one_split_once() -> None:
    sentences = [sentence for rows in demo_splits().values() for sentence in rows.first]

    assert len(set(sentences)) == len(sentences) == sum(NUM_ROWS.values())


def test_demo_labels_need_more_than_a_keyword() -> None:
    for split in (SplitName.TRAIN, SplitName.VALIDATION):
        rows = demo_splits()[split]
        assert rows.labels is not None
        assert 0.45 < sum(rows.labels) / len(rows) < 0.55
        assert 0.6 < accuracy(rows, keyword_rule) < 0.73
        assert accuracy(rows, whole_rule) == 1.0


def test_demo_rows_never_change() -> None:
    # Recorded once: the same demo for everybody, after any upgrade.
    text = "\n".join(sentence for rows in demo_splits().values() for sentence in rows.first)

    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "f3948cce114b3166"


def test_demo_vocabulary_covers_every_word_and_is_small() -> None:
    tokenizer = open_tokenizer(None)

    assert tokenizer.vocabulary_size == len(demo_words()) + len(SPECIAL_TOKENS) == 96
    for rows in demo_splits().values():
        assert SPECIAL_TOKENS.index(UNKNOWN_TOKEN) not in tokenizer.tokenise(rows, max_length=64).input_ids_T


def test_demo_adjectives_belong_to_one_side() -> None:
    assert not set(POSITIVE) & set(NEGATIVE)
