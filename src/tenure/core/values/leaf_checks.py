"""Compares single values (a float, a datetime, ...) before encoding and after decoding.

`plain_checks` builds the checks of whole types out of these. A check returns the first difference
that it finds, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, time
from typing import Any, Final, TypeAlias

from msgspec import inspect

from tenure.core.values.json import encode_comparable, load_pydantic
from tenure.core.values.misfits import CHANGES, KEY, NOT_FINITE, Misfit, Problem, below

__all__ = ["BY_VALUE", "LEAVES", "Check", "anything", "compare_models", "compare_written"]

Check: TypeAlias = Callable[[Any, Any], Problem | None]
"""Compares an original value with the one decoded from its JSON."""

_NOT_BYTES: Final = "Expected bytes, got another type"
_ZONE: Final = "its UTC offset has seconds, which JSON cannot hold. Convert it to UTC"
_BYTES: Final = (bytes, bytearray, memoryview)


def _float(original: Any, decoded: Any) -> Problem | None:
    # A key may be NaN.
    is_same = original == decoded or (math.isnan(original) and math.isnan(decoded))
    return None if is_same else ((), CHANGES)


def _bytes(original: Any, decoded: Any) -> Problem | None:
    is_same = isinstance(original, _BYTES) and bytes(original) == bytes(decoded)
    return None if is_same else ((), _NOT_BYTES)


def _datetime(original: Any, decoded: Any) -> Problem | None:
    if not isinstance(original, datetime) or original == decoded:
        return None
    # Times in the hour of a clock change are never equal to those of another zone.
    is_same = bool(original.tzinfo) == bool(decoded.tzinfo) and _utc(original) == _utc(decoded)
    return None if is_same else ((), _ZONE)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo else moment


def _time(original: Any, decoded: Any) -> Problem | None:
    return None if not isinstance(original, time) or original == decoded else ((), _ZONE)


def anything(original: Any, decoded: Any) -> Problem | None:  # noqa: ARG001 - plain JSON by contract
    """Check an untyped value: only NaN and infinity are lost, the rest decodes as plain values."""
    if type(original) in _FINE:
        return None
    if isinstance(original, float):
        return None if math.isfinite(original) else ((), NOT_FINITE)
    for step, part in _parts(original):
        if (problem := anything(part, None)) is not None:
            return below(step, problem)
    return None


_FINE: Final = frozenset({str, int, bool, type(None), bytes})


def _parts(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        for part in value.values():
            yield KEY, part
    elif isinstance(value, Collection) and not isinstance(value, str | bytes | bytearray):
        yield from enumerate(value)
    else:
        names = getattr(value, "__struct_fields__", getattr(value, "__dataclass_fields__", ()))
        for name in names if not isinstance(value, type) else ():
            yield name, getattr(value, name, None)


def compare_written(original: Any, decoded: Any) -> Problem | None:
    """Compare objects that serialize themselves, by what they write."""
    is_same = encode_comparable(original) == encode_comparable(decoded)
    return None if is_same else ((), CHANGES)


def compare_models(kind: type, original: Any, decoded: Any) -> Problem | None:
    """Compare a Pydantic model that is part of a type Pydantic does not know."""
    try:
        problem: Problem | None = load_pydantic().form_of_class(kind).difference(original, decoded)
    except Misfit as misfit:
        problem = misfit.problems[0]
    return problem


LEAVES: Final[dict[type, Check]] = {
    inspect.AnyType: anything,
    inspect.RawType: anything,
    inspect.FloatType: _float,
    inspect.BytesType: _bytes,
    inspect.ByteArrayType: _bytes,
    inspect.MemoryViewType: _bytes,
    inspect.DateTimeType: _datetime,
    inspect.TimeType: _time,
}


BY_VALUE: Final = (_float, _bytes, _datetime, _time)
"""Checks for which equal lists need no comparison item by item, which saves a loop in Python."""
