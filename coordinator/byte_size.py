"""Numbers of bytes as people write and read them."""

import re

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
PATTERN = r"^([1-9][0-9]{0,8}(\.[0-9]{1,3})?|0\.0{0,2}[1-9][0-9]{0,2})(KiB|MiB|GiB|TiB)$"
"""What `bytes_of` reads as text: more than nothing."""


def bytes_of(size: int | str) -> int:
    """Return the bytes of a number of them, or of text such as ``1.5GiB``, which matches ``PATTERN``."""
    if isinstance(size, int):
        return size
    assert re.fullmatch(PATTERN, size), size
    number, unit = size[:-3], size[-3:]
    return int(float(number) * _UNITS[unit])


def shown(num_bytes: int) -> str:
    """Return bytes with three digits or four, in the largest unit of which there is one, such as ``1.50 GiB``."""
    for name, unit in reversed(_UNITS.items()):
        if num_bytes >= unit:
            count = num_bytes / unit
            return f"{count:.{2 if count < 10 else 1 if count < 100 else 0}f} {name}"
    return f"{num_bytes} bytes"
