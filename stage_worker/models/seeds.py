"""Seeds: everything random is a pure function of what it is for."""

import hashlib


def seed_of(*words: str | int) -> int:
    """Return 64 bits that depend on all of ``words`` and on their order, the same on every machine."""
    text = "/".join(str(word) for word in words)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
