"""Sizes as users write them: a number of bytes, or text such as "512MB" or "1.5GiB"."""

from __future__ import annotations

import math
import re

from tenure.errors import ConfigError

__all__ = ["as_size", "size"]

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)}
_UNITS |= {f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGT", 1)}
_TEXT = re.compile(r"(\d+(?:\.\d+)?)([A-Z]*)")


def size(value: object, what: str, *, minimum: int = 0) -> int:
    """Return `value` in bytes. Raises ConfigError if it is no size, or less than `minimum`.

    `what` names the argument in the message.
    """
    count = _bytes(value)
    if count is None:
        msg = (
            f"{what} must be a number of bytes, or text such as '512MB' (millions) or '1.5GiB' "
            f"(1024 x 1024 x 1024), not {value!r}."
        )
        raise ConfigError(msg)
    if count < minimum:
        msg = f"{what} must be at least {as_size(minimum)}, not {value!r}."
        raise ConfigError(msg)
    return count


def as_size(count: int) -> str:
    """Return a number of bytes as text with a unit, for people."""
    return f"{count:,} bytes" if count < 10**6 else f"{count / 10**6:,.0f} MB"


def _bytes(value: object) -> int | None:
    if type(value) is int:  # True is an int to Python
        return value
    if not isinstance(value, str):
        return None
    parts = _TEXT.fullmatch(value.replace(" ", "").upper())
    if parts is None or parts[2] not in _UNITS:
        return None
    count = float(parts[1]) * _UNITS[parts[2]]
    return int(count) if math.isfinite(count) else None
