"""Checks whether an argument of a plain type arrives as it was given.

msgspec reads back without complaint what it wrote with a loss: NaN becomes null, the fields of a
subclass and unknown keys of a TypedDict vanish, an int as a key becomes text. `check_of` looks at a
type once, when a task is declared, and returns what compares a value with the one that was read
back. Types that lose nothing (int, str, lists of them and so on) have no check and cost nothing.

Reading may convert, as JSON does: a text becomes a UUID, a list a tuple, a dict a dataclass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, time
from functools import partial
from typing import Any, Final

from msgspec import inspect

from tenure.core.values.json import is_pydantic
from tenure.core.values.leaf_checks import (
    BY_VALUE,
    LEAVES,
    Check,
    anything,
    compare_models,
    compare_written,
)
from tenure.core.values.misfits import CHANGES, KEY, NOT_FINITE, OTHER_CLASS, Problem, below

__all__ = ["check_of"]

_EXTRA: Final = "it has a field that its type does not have, and which would be lost"
_TEXT_KEYS: Final = (
    "JSON has text as keys only, and the type allows text, too. Use str keys, or declare the "
    "type of the keys without str"
)


def check_of(info: inspect.Type) -> Check | None:
    """Return the check for a type; None if its values always arrive as they are given."""
    return _Checks().of(info)


class _Checks:
    """Makes checks. Remembers those of classes, which may contain themselves."""

    def __init__(self) -> None:
        self._records: dict[int, _Record | _TypedDict | _NamedTuple] = {}

    def of(self, info: Any) -> Check | None:
        for kinds, make in _WITH_PARTS:
            if isinstance(info, kinds):
                check: Check | None = getattr(self, make)(info)
                return check
        return LEAVES.get(type(info))

    def _inner(self, info: inspect.Metadata) -> Check | None:
        return self.of(info.type)

    def _custom(self, info: inspect.CustomType) -> Check | None:
        if is_pydantic(info.cls):
            return partial(compare_models, info.cls)
        if hasattr(info.cls, "model_validate"):
            return compare_written
        return anything if isinstance([], info.cls) or isinstance({}, info.cls) else None

    def _dict(self, info: inspect.DictType) -> Check | None:
        keys, values = _key_check(info.key_type), self.of(info.value_type)
        return _Dict(keys, values) if keys or values else None

    def _list(self, info: inspect.ListType | inspect.VarTupleType) -> Check | None:
        item = self.of(info.item_type)
        return _List(item) if item else None

    def _tuple(self, info: inspect.TupleType) -> Check | None:
        items = [self.of(item) for item in info.item_types]
        return _Tuple(items) if any(items) else None

    def _set(self, info: inspect.SetType | inspect.FrozenSetType) -> Check | None:
        return _set if self.of(info.item_type) else None

    def _record(self, info: Any) -> Check:
        if id(info) not in self._records:
            record = _RECORDS[type(info)](info.cls)
            self._records[id(info)] = record
            for field in info.fields:
                record.add(field.name, field.encode_name, self.of(field.type))
        return self._records[id(info)]

    def _union(self, info: inspect.UnionType) -> Check | None:
        checks = [check for check in map(self.of, info.types) if check]
        by_class = {option.cls: self.of(option) for option in info.types if hasattr(option, "cls")}
        # Only one of the others can be there: msgspec could not tell two of them apart.
        by_kind = [
            (kind, self.of(option))
            for option in info.types
            for form, kind in _READ_AS
            if isinstance(option, form)
        ]
        return _Union(by_class, by_kind) if checks else None


# Types with parts.


class _Union:
    """One of several types: the one that was read decides."""

    def __init__(
        self, by_class: dict[type, Check | None], by_kind: list[tuple[type, Check | None]]
    ) -> None:
        self._by_class = by_class
        self._by_kind = by_kind

    def __call__(self, given: Any, found: Any) -> Problem | None:
        if found is None:
            return ((), NOT_FINITE) if isinstance(given, float) else None
        if type(found) in self._by_class:
            check = self._by_class[type(found)]
        else:
            kinds = (check for kind, check in self._by_kind if isinstance(found, kind))
            check = next(kinds, None)
        return check(given, found) if check else None


_READ_AS: Final[tuple[tuple[type, type], ...]] = (
    (inspect.FloatType, float),
    (inspect.BytesType, bytes),
    (inspect.ByteArrayType, bytearray),
    (inspect.MemoryViewType, memoryview),
    (inspect.DateTimeType, datetime),
    (inspect.TimeType, time),
    (inspect.DictType, dict),
    (inspect.TypedDictType, dict),
    (inspect.ListType, list),
    (inspect.SetType, set),
    (inspect.FrozenSetType, frozenset),
    (inspect.VarTupleType, tuple),
    (inspect.TupleType, tuple),
)


class _List:
    def __init__(self, item: Check) -> None:
        self._item = item

    def __call__(self, given: Any, found: Any) -> Problem | None:
        if not isinstance(given, Iterable):
            return (), OTHER_CLASS
        if self._item in BY_VALUE and given == found:
            return None
        return _first(map(self._item, given, found))


class _Tuple:
    def __init__(self, items: Sequence[Check | None]) -> None:
        self._items = items

    def __call__(self, given: Any, found: Any) -> Problem | None:
        if not isinstance(given, Collection) or len(given) > len(found):
            return (), OTHER_CLASS
        pairs = zip(self._items, given, found, strict=False)
        return _first(check(one, other) if check else None for check, one, other in pairs)


def _set(given: Any, found: Any) -> Problem | None:
    try:
        is_same = set(given) == set(found)
    except TypeError:
        is_same = False
    return None if is_same else ((KEY,), CHANGES)


class _Dict:
    def __init__(self, key: Check | None, value: Check | None) -> None:
        self._key = key
        self._value = value

    def __call__(self, given: Any, found: Any) -> Problem | None:
        if not isinstance(given, Mapping):
            return (), OTHER_CLASS
        if self._value in BY_VALUE and given == found:
            return None
        for (key, value), (found_key, found_value) in zip(
            given.items(), found.items(), strict=False
        ):
            problem = self._key(key, found_key) if self._key else None
            if problem is None and self._value:
                problem = self._value(value, found_value)
            if problem is not None:
                return below(KEY, problem)
        return None


def _key_check(info: Any) -> Check | None:
    options = getattr(info, "types", (info,))
    if isinstance(info, inspect.AnyType) or len(options) > 1 or _is_mixed(info):
        return _text_key
    return LEAVES.get(type(info))


def _is_mixed(info: Any) -> bool:
    """Whether a Literal has numbers and texts."""
    return len({type(value) for value in getattr(info, "values", ())}) > 1


def _text_key(given: Any, found: Any) -> Problem | None:
    return None if given == found else ((), _TEXT_KEYS)


class _NamedTuple(_Tuple):
    def __init__(self, kind: type) -> None:  # noqa: ARG002 - as the others
        self._items: list[Check | None] = []

    def add(self, name: str, written: str, check: Check | None) -> None:  # noqa: ARG002 - as the others
        self._items.append(check)


class _TypedDict:
    def __init__(self, kind: type) -> None:  # noqa: ARG002 - as the others
        self._fields: dict[str, Check | None] = {}

    def add(self, name: str, written: str, check: Check | None) -> None:  # noqa: ARG002 - as the others
        self._fields[name] = check

    def __call__(self, given: Any, found: Any) -> Problem | None:
        if not isinstance(given, Mapping):
            return (), OTHER_CLASS
        if len(given) > len(found):
            return (), _EXTRA
        for name, check in self._fields.items():
            if check and name in given and (problem := check(given[name], found[name])):
                return below(name, problem)
        return None


class _Record:
    """A dataclass, a class of attrs or a Struct."""

    def __init__(self, kind: type) -> None:
        self._names: set[str] = set()
        self._checked: list[tuple[str, str, Check]] = []
        # Classes of attrs have converters as well.
        self._may_change = hasattr(kind, "__post_init__") or hasattr(kind, "__attrs_attrs__")

    def add(self, name: str, written: str, check: Check | None) -> None:
        self._names.add(written)
        if check is None and self._may_change:
            check = _equal
        if check is not None:
            self._checked.append((name, written, check))

    def __call__(self, given: Any, found: Any) -> Problem | None:
        if isinstance(given, Mapping):
            return self._mapping(given, found)
        if type(given) is not type(found):
            return (), OTHER_CLASS
        for name, _, check in self._checked:
            problem = check(getattr(given, name, None), getattr(found, name, None))
            if problem is not None:
                return below(name, problem)
        return None

    def _mapping(self, given: Mapping[Any, Any], found: Any) -> Problem | None:
        if any(name not in self._names for name in given):
            return (), _EXTRA
        for name, written, check in self._checked:
            if written in given:
                problem = check(given[written], getattr(found, name, None))
                if problem is not None:
                    return below(name, problem)
        return None


def _equal(given: Any, found: Any) -> Problem | None:
    """Find what a hook has changed; another class is a conversion, such as a list to a tuple."""
    return None if type(given) is not type(found) or given == found else ((), CHANGES)


def _first(problems: Iterable[Problem | None]) -> Problem | None:
    for place, problem in enumerate(problems):
        if problem is not None:
            return below(place, problem)
    return None


_WITH_PARTS: Final[tuple[tuple[Any, str], ...]] = (
    (inspect.Metadata, "_inner"),
    (inspect.CustomType, "_custom"),
    (inspect.UnionType, "_union"),
    (inspect.DictType, "_dict"),
    (inspect.ListType | inspect.VarTupleType, "_list"),
    (inspect.TupleType, "_tuple"),
    (inspect.SetType | inspect.FrozenSetType, "_set"),
    (
        inspect.TypedDictType | inspect.NamedTupleType | inspect.DataclassType | inspect.StructType,
        "_record",
    ),
)
_RECORDS: Final[dict[type, type[_Record | _TypedDict | _NamedTuple]]] = {
    inspect.TypedDictType: _TypedDict,
    inspect.NamedTupleType: _NamedTuple,
    inspect.DataclassType: _Record,
    inspect.StructType: _Record,
}
