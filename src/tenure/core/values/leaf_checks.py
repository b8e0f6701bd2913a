"""Checks whether a single value of a plain type arrives as it was given. See `plain_checks`."""

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
"""Compares a value that was given with the one that was read back."""

_NOT_BYTES: Final = "Expected bytes, got another type"
_ZONE: Final = "its UTC offset has seconds, which JSON cannot hold. Convert it to UTC"
_BYTES: Final = (bytes, bytearray, memoryview)


def _float(given: Any, found: Any) -> Problem | None:
    is_same = given == found or (math.isnan(given) and math.isnan(found))  # a key may be NaN
    return None if is_same else ((), CHANGES)


def _bytes(given: Any, found: Any) -> Problem | None:
    return None if isinstance(given, _BYTES) and bytes(given) == bytes(found) else ((), _NOT_BYTES)


def _datetime(given: Any, found: Any) -> Problem | None:
    if not isinstance(given, datetime) or given == found:
        return None
    # Times in the hour of a clock change are never equal to those of another zone.
    is_same = bool(given.tzinfo) == bool(found.tzinfo) and _utc(given) == _utc(found)
    return None if is_same else ((), _ZONE)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo else moment


def _time(given: Any, found: Any) -> Problem | None:
    return None if not isinstance(given, time) or given == found else ((), _ZONE)


def anything(given: Any, found: Any) -> Problem | None:  # noqa: ARG001 - plain JSON by contract
    """Look for what JSON does not have; everything else comes back as plain values."""
    if type(given) in _FINE:
        return None
    if isinstance(given, float):
        return None if math.isfinite(given) else ((), NOT_FINITE)
    for step, part in _parts(given):
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


def compare_written(given: Any, found: Any) -> Problem | None:
    """Compare what objects write that read and write themselves."""
    is_same = encode_comparable(given) == encode_comparable(found)
    return None if is_same else ((), CHANGES)


def compare_models(kind: type, given: Any, found: Any) -> Problem | None:
    """Compare a model inside of something that Pydantic does not know."""
    try:
        problem: Problem | None = load_pydantic().form_of_class(kind).difference(given, found)
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
"""Equal lists of these are the same. That takes no loop in Python."""
