"""The built-in task: generated film verdicts, shaped like SST-2, with a vocabulary of its own.

A verdict is positive where its adjective is, unless the adjective is negated:
"the plot was not dull this time" is positive. A third of the rows are negated,
so a model that looks at single words alone is right on two rows in three.
Everything comes from one fixed seed: the same rows for everybody, for ever.
"""

import functools
import hashlib

import numpy as np

from dataloader_svc.splits import SplitName, SplitRows

NUM_ROWS = {SplitName.TRAIN: 2000, SplitName.VALIDATION: 400, SplitName.TEST: 200}
"""Rows of each split; no sentence stands in two of them, or twice in one."""

NEGATED_SHARE = 1 / 3

OPENERS = ("", "", "honestly", "i think", "they said", "well", "my friends agreed that", "everybody knows")
DETERMINERS = ("the", "this", "that", "our", "their")
NOUNS = (
    *("film", "story", "acting", "plot", "music", "dialogue", "ending", "script", "scene", "cast", "humor", "pace"),
    *("camera", "villain", "hero", "song", "drama", "comedy", "picture", "show", "sequel", "trailer"),
)
VERBS = ("is", "was", "felt", "seemed", "looked", "became")
NEGATIONS = ("not", "never", "hardly")
DEGREES = ("", "", "very", "quite", "really", "rather", "so", "truly")
NEGATIVE = ("bad", "dull", "boring", "clumsy", "weak", "stale", "slow", "flat", "cold", "silly", "lazy", "messy")
POSITIVE = (
    "good",
    "great",
    "charming",
    "funny",
    "clever",
    "moving",
    "lovely",
    "bright",
    "fresh",
    "warm",
    "sharp",
    "rich",
)
TAILS = ("", "", "in the end", "this time", "at first", "from start to finish", "as a whole", "once again")


@functools.cache
def demo_splits() -> dict[SplitName, SplitRows]:
    """Return all splits of the built-in task; the test split has no labels, as in GLUE."""
    seed = hashlib.blake2b(b"demo verdicts", digest_size=32).digest()
    generator = np.random.RandomState(np.frombuffer(seed, dtype="<u4"))
    verdicts: dict[str, int] = {}
    while len(verdicts) < sum(NUM_ROWS.values()):
        sentence, label = _verdict(generator)
        verdicts.setdefault(sentence, label)
    sentences, labels = tuple(verdicts), tuple(verdicts.values())
    splits, start = {}, 0
    for name, count in NUM_ROWS.items():
        rows = slice(start, start + count)
        unlabelled = name is SplitName.TEST
        splits[name] = SplitRows(first=sentences[rows], second=None, labels=None if unlabelled else labels[rows])
        start += count
    return splits


def demo_words() -> tuple[str, ...]:
    """Return every word that a sentence can hold, sorted."""
    phrases = (OPENERS, DETERMINERS, NOUNS, VERBS, NEGATIONS, DEGREES, NEGATIVE, POSITIVE, TAILS)
    return tuple(sorted({word for options in phrases for phrase in options for word in phrase.split()}))


def _verdict(generator: np.random.RandomState) -> tuple[str, int]:
    def pick(options: tuple[str, ...]) -> str:
        return options[generator.randint(len(options))]

    positive = bool(generator.randint(2))
    negated = generator.random_sample() < NEGATED_SHARE
    parts = (
        pick(OPENERS),
        pick(DETERMINERS),
        pick(NOUNS),
        pick(VERBS),
        pick(NEGATIONS) if negated else "",
        pick(DEGREES),
        pick(POSITIVE if positive else NEGATIVE),
        pick(TAILS),
    )
    return " ".join(part for part in parts if part), int(positive != negated)
