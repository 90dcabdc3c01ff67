"""Sizes as people write them: ``4GiB``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([A-Za-z]*)$")


def parse_size(value: object) -> int:
    """``"4GiB"`` or a number of bytes → bytes. Raises ``ValueError`` with what would be right."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.match(value.strip())) and match[2].lower() in _UNITS:
        return round(float(match[1]) * _UNITS[match[2].lower()])
    raise ValueError(f"expected a size, for example 64MiB or 4GiB, got {value!r}")


def format_size(num_bytes: int) -> str:
    """1536 → ``"1.5 KiB"``: three digits are enough for people."""
    value, units = float(num_bytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.0f} {units[0]}" if value >= 100 or value == int(value) else f"{value:.3g} {units[0]}"


Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size)]
"""Bytes."""
