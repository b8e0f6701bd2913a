"""Compares a value of a Pydantic type with the one decoded from its JSON; reads core schemas.

The JSON text alone cannot tell: bytes look like their base64, a Dog like a Cat with the same
fields, NaN like null. So `differ` compares classes and the types of single values as well.
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
    original: Any, decoded: Any, as_json: Callable[[Any], Any], *, is_untyped: bool
) -> Problem | None:
    """Return the first difference between two values; None if they are the same.

    With `is_untyped`, some part of the type is Any, and decodes as plain JSON: the original of such
    a part is compared in the form that `as_json` gives it.
    """
    return _Comparison(as_json, is_untyped=is_untyped).of(original, decoded)


class _Comparison:
    def __init__(self, as_json: Callable[[Any], Any], *, is_untyped: bool) -> None:
        self._as_json = as_json
        self._is_untyped = is_untyped

    def of(self, original: Any, decoded: Any) -> Problem | None:
        kind = type(original)
        # Most values are of these types; the general way takes ten times longer.
        if kind is type(decoded) and kind in _SIMPLE:
            return None if original == decoded else self._single(original, decoded)
        names = _fields(original)
        if names is not None:
            return self._record(original, decoded, names)
        if isinstance(original, Mapping) and isinstance(decoded, Mapping):
            return _hidden(self._named(original, decoded))
        if isinstance(original, _SETS) and isinstance(decoded, (*_SETS, *_SEQUENCES)):
            return _hidden(self._listed(self._in_order(original), self._in_order(decoded)))
        if isinstance(original, _SEQUENCES) and isinstance(decoded, _SEQUENCES):
            return self._listed(original, decoded)
        return self._single(original, decoded)

    def _named(self, original: Mapping[Any, Any], decoded: Mapping[Any, Any]) -> Problem | None:
        for name in (*original, *(name for name in decoded if name not in original)):
            problem = self.of(original.get(name, _MISSING), decoded.get(name, _MISSING))
            if problem is not None:
                return below(str(name), problem)
        return None

    def _listed(self, original: Any, decoded: Any) -> Problem | None:
        if len(original) != len(decoded):
            return (), CHANGES
        for place, (item, decoded_item) in enumerate(zip(original, decoded, strict=True)):
            if (problem := self.of(item, decoded_item)) is not None:
                return below(place, problem)
        return None

    def _in_order(self, values: Iterable[Any]) -> list[Any]:
        return sorted(values, key=lambda value: encode_comparable(self._as_json(value)))

    def _record(self, original: Any, decoded: Any, names: Iterable[str]) -> Problem | None:
        if type(original) is type(decoded):
            decoded_names = _fields(decoded) or ()
            return self._named(_attributes(original, names), _attributes(decoded, decoded_names))
        if self._is_untyped and isinstance(decoded, _JSON):
            return self.of(self._as_json(original), decoded)
        there = _fields(decoded)
        lost = [name for name in names if there is not None and name not in there]
        return tuple(lost[:1]), OTHER_CLASS

    def _single(self, original: Any, decoded: Any) -> Problem | None:
        if isinstance(original, float) and not math.isfinite(original):
            is_same = isinstance(decoded, float) and str(decoded) == str(original)
            return None if is_same else ((), NOT_FINITE)
        if _family(original) is _family(decoded):
            if _is_equal(original, decoded) or self._is_written_alike(original, decoded):
                return None
            return (), _BYTES if isinstance(original, bytes) else CHANGES
        if self._is_untyped and isinstance(decoded, _JSON) and original is not _MISSING:
            plain = self._as_json(original)
            if isinstance(plain, _JSON) and type(plain) is not type(original):
                return self.of(plain, decoded)
        return (), _BYTES if isinstance(original, bytes) else OTHER_CLASS

    def _is_written_alike(self, original: Any, decoded: Any) -> bool:
        """Return whether objects without an `==` of their own are written the same."""
        if original is _MISSING or decoded is _MISSING or isinstance(original, _FAMILIES):
            return False
        plain = self._as_json(original)
        # Not compared as JSON text: bytes would look like their base64.
        return isinstance(plain, _JSON) and self.of(plain, self._as_json(decoded)) is None


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


def _is_equal(original: Any, decoded: Any) -> bool:
    if isinstance(original, datetime) and bool(original.tzinfo) == bool(decoded.tzinfo):
        # Times in the hour of a clock change are never equal to those of another zone.
        return original == decoded or (
            original.tzinfo is not None and original.astimezone(UTC) == decoded.astimezone(UTC)
        )
    if isinstance(original, Decimal) and original.is_nan():
        return str(original) == str(decoded)
    return bool(original == decoded)


def _hidden(problem: Problem | None) -> Problem | None:
    """Hide the first step of a path: the key of a dict is data, and may be a secret."""
    return problem and ((KEY, *problem[0][1:]), problem[1])


# Reading core schemas.


@dataclasses.dataclass(frozen=True)
class Facts:
    """What the forms need to know about a type."""

    is_untyped: bool
    """Whether some part of it is Any."""
    names: frozenset[str]
    """The names of all fields, aliases, tags and models in it: steps that errors may show."""


def facts_of(schema: Any) -> Facts:
    """Collect the facts in a core schema."""
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
    """Yield all dicts in a schema, at every level."""
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
