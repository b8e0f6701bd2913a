"""Checks whether a value of a Pydantic type arrives as it was given, and what its schema says.

JSON text is not enough to tell: bytes look like their base64, a Dog like a Cat with the same
fields, NaN like null. So classes and the types of single values are compared as well.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel, RootModel

from tenure.core.values.json import encode_comparable
from tenure.core.values.misfits import CHANGES, KEY, NOT_FINITE, OTHER_CLASS, Problem, below

__all__ = ["Facts", "differ", "facts_of"]

_BYTES: Final = (
    "bytes that are not text need base64 in JSON. Set model_config = "
    "ConfigDict(ser_json_bytes='base64', val_json_bytes='base64') in the model"
)
_MISSING: Final = object()
# A subclass of these counts as the class itself: an enum that is a str may arrive as that str.
_FAMILIES: Final = (bool, int, float, str, bytes, bytearray, datetime, date, time, Decimal)
_SIMPLE: Final = frozenset({str, int, bool, float, type(None), bytes, date, UUID})
_SEQUENCES: Final = (list, tuple, deque)
_SETS: Final = (set, frozenset)
_JSON: Final = (dict, list, str, int, float, type(None))


def differ(
    given: Any, found: Any, as_json: Callable[[Any], Any], *, is_untyped: bool
) -> Problem | None:
    """Return where two values are not the same; None if they are.

    With `is_untyped`, some part of the type is Any. What is there comes back as plain JSON, which
    `as_json` makes of a value.
    """
    return _Comparison(as_json, is_untyped=is_untyped).of(given, found)


class _Comparison:
    def __init__(self, as_json: Callable[[Any], Any], *, is_untyped: bool) -> None:
        self._as_json = as_json
        self._is_untyped = is_untyped

    def of(self, given: Any, found: Any) -> Problem | None:
        kind = type(given)
        if kind is type(found) and kind in _SIMPLE:  # most values: the rest takes ten times longer
            return None if given == found else self._single(given, found)
        names = _fields(given)
        if names is not None:
            return self._record(given, found, names)
        if isinstance(given, Mapping) and isinstance(found, Mapping):
            return _hidden(self._named(given, found))
        if isinstance(given, _SETS) and isinstance(found, (*_SETS, *_SEQUENCES)):
            return _hidden(self._listed(self._in_order(given), self._in_order(found)))
        if isinstance(given, _SEQUENCES) and isinstance(found, _SEQUENCES):
            return self._listed(given, found)
        return self._single(given, found)

    def _named(self, given: Mapping[Any, Any], found: Mapping[Any, Any]) -> Problem | None:
        for name in (*given, *(name for name in found if name not in given)):
            problem = self.of(given.get(name, _MISSING), found.get(name, _MISSING))
            if problem is not None:
                return below(str(name), problem)
        return None

    def _listed(self, given: Any, found: Any) -> Problem | None:
        if len(given) != len(found):
            return (), CHANGES
        for place, (one, other) in enumerate(zip(given, found, strict=True)):
            if (problem := self.of(one, other)) is not None:
                return below(place, problem)
        return None

    def _in_order(self, values: Iterable[Any]) -> list[Any]:
        return sorted(values, key=lambda value: encode_comparable(self._as_json(value)))

    def _record(self, given: Any, found: Any, names: Iterable[str]) -> Problem | None:
        if type(given) is type(found):
            found_names = _fields(found) or ()
            return self._named(_attributes(given, names), _attributes(found, found_names))
        if self._is_untyped and isinstance(found, _JSON):
            return self.of(self._as_json(given), found)
        there = _fields(found)
        lost = [name for name in names if there is not None and name not in there]
        return tuple(lost[:1]), OTHER_CLASS

    def _single(self, given: Any, found: Any) -> Problem | None:
        if isinstance(given, float) and not math.isfinite(given):
            is_same = isinstance(found, float) and str(found) == str(given)
            return None if is_same else ((), NOT_FINITE)
        if _family(given) is _family(found):
            if _is_equal(given, found) or self._is_written_alike(given, found):
                return None
            return (), _BYTES if isinstance(given, bytes) else CHANGES
        if self._is_untyped and isinstance(found, _JSON) and given is not _MISSING:
            plain = self._as_json(given)
            if isinstance(plain, _JSON) and type(plain) is not type(given):
                return self.of(plain, found)
        return (), _BYTES if isinstance(given, bytes) else OTHER_CLASS

    def _is_written_alike(self, given: Any, found: Any) -> bool:
        """Whether objects without `==` are the same; what has its own family has a good one."""
        if given is _MISSING or found is _MISSING or isinstance(given, _FAMILIES):
            return False
        plain = self._as_json(given)
        # Not by their text: bytes would look like their base64.
        return isinstance(plain, _JSON) and self.of(plain, self._as_json(found)) is None


def _fields(value: Any) -> Collection[str] | None:
    """Return the names of an object's fields; None if it has none."""
    kind: Any = type(value)
    names = _fields_of(kind)
    extra = value.model_extra if isinstance(value, BaseModel) else None
    return (*names, *extra) if names and extra else names


@lru_cache(maxsize=512)
def _fields_of(kind: Any) -> tuple[str, ...] | None:
    if issubclass(kind, RootModel):
        return ("root",)
    if issubclass(kind, BaseModel):
        return tuple(kind.model_fields)
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return None


def _attributes(value: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(value, name, _MISSING) for name in names}


def _family(value: Any) -> type:
    return next((kind for kind in _FAMILIES if isinstance(value, kind)), type(value))


def _is_equal(given: Any, found: Any) -> bool:
    if isinstance(given, datetime) and bool(given.tzinfo) == bool(found.tzinfo):
        # Times in the hour of a clock change are never equal to those of another zone.
        return given == found or (
            given.tzinfo is not None and given.astimezone(UTC) == found.astimezone(UTC)
        )
    if isinstance(given, Decimal) and given.is_nan():
        return str(given) == str(found)
    return bool(given == found)


def _hidden(problem: Problem | None) -> Problem | None:
    """Return a problem without the first step, which is data: a key of a dict."""
    return problem and ((KEY, *problem[0][1:]), problem[1])


# What a schema says.


@dataclasses.dataclass(frozen=True)
class Facts:
    """What matters here of a type."""

    is_untyped: bool
    """Whether some part of it is Any."""
    names: frozenset[str]
    """All names of fields, aliases, tags and models in it."""


def facts_of(schema: Any) -> Facts:
    """Return what a core schema says."""
    seen = list(_schemas(schema))
    is_untyped = any(
        part.get("type") == "any"
        or part.get("extra_behavior") == "allow"
        or part.get("extra_fields_behavior") == "allow"
        for part in seen
    )
    names = {name for part in seen for name in _names(part)}
    return Facts(is_untyped, frozenset(names))


def _schemas(part: Any) -> Iterator[dict[str, Any]]:
    """Yield all the dicts in a schema."""
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += [inner for name, inner in part.items() if name != "metadata"]
        elif isinstance(part, list | tuple):
            waiting += part


def _names(part: dict[str, Any]) -> Iterator[str]:
    for place in ("fields", "choices"):
        if isinstance(part.get(place), dict):
            yield from map(str, part[place])
    for place in ("name", "alias", "validation_alias", "model_name", "dataclass_name", "type"):
        yield from _texts(part.get(place))
    yield from (choice[1] for choice in part.get("choices", ()) if isinstance(choice, tuple))
    if isinstance(part.get("cls"), type):
        yield part["cls"].__name__


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
