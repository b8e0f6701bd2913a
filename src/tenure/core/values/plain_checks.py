"""Compares arguments of plain types before encoding and after decoding.

msgspec loses things silently: NaN becomes null, the fields of a subclass and unknown keys of a
TypedDict vanish, an int key becomes text. `check_of` examines a type once, when a task is declared,
and returns a check that compares an original value with the decoded one. Types that lose nothing
(int, str, lists of them and so on) have no check and cost nothing.

Conversions that JSON implies are no loss: text becomes a UUID, a list a tuple, a dict a dataclass.
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
    """Return the check of a type; None if its values always survive the round trip."""
    return _Checks().of(info)


class _Checks:
    """Builds checks. Keeps those of classes, because a class may contain itself."""

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
        # At most one option of each kind: msgspec refuses unions that it cannot tell apart.
        by_kind = [
            (kind, self.of(option))
            for option in info.types
            for form, kind in _READ_AS
            if isinstance(option, form)
        ]
        return _Union(by_class, by_kind) if checks else None


# Types with parts.


class _Union:
    """A union: the type of the decoded value chooses the check."""

    def __init__(
        self, by_class: dict[type, Check | None], by_kind: list[tuple[type, Check | None]]
    ) -> None:
        self._by_class = by_class
        self._by_kind = by_kind

    def __call__(self, original: Any, decoded: Any) -> Problem | None:
        if decoded is None:
            return ((), NOT_FINITE) if isinstance(original, float) else None
        if type(decoded) in self._by_class:
            check = self._by_class[type(decoded)]
        else:
            kinds = (check for kind, check in self._by_kind if isinstance(decoded, kind))
            check = next(kinds, None)
        return check(original, decoded) if check else None


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

    def __call__(self, original: Any, decoded: Any) -> Problem | None:
        if not isinstance(original, Iterable):
            return (), OTHER_CLASS
        if self._item in BY_VALUE and original == decoded:
            return None
        return _first(map(self._item, original, decoded))


class _Tuple:
    def __init__(self, items: Sequence[Check | None]) -> None:
        self._items = items

    def __call__(self, original: Any, decoded: Any) -> Problem | None:
        if not isinstance(original, Collection) or len(original) > len(decoded):
            return (), OTHER_CLASS
        pairs = zip(self._items, original, decoded, strict=False)
        return _first(
            check(item, decoded_item) if check else None for check, item, decoded_item in pairs
        )


def _set(original: Any, decoded: Any) -> Problem | None:
    try:
        is_same = set(original) == set(decoded)
    except TypeError:
        is_same = False
    return None if is_same else ((KEY,), CHANGES)


class _Dict:
    def __init__(self, key: Check | None, value: Check | None) -> None:
        self._key = key
        self._value = value

    def __call__(self, original: Any, decoded: Any) -> Problem | None:
        if not isinstance(original, Mapping):
            return (), OTHER_CLASS
        if self._value in BY_VALUE and original == decoded:
            return None
        for (key, value), (decoded_key, decoded_value) in zip(
            original.items(), decoded.items(), strict=False
        ):
            problem = self._key(key, decoded_key) if self._key else None
            if problem is None and self._value:
                problem = self._value(value, decoded_value)
            if problem is not None:
                return below(KEY, problem)
        return None


def _key_check(info: Any) -> Check | None:
    options = getattr(info, "types", (info,))
    if isinstance(info, inspect.AnyType) or len(options) > 1 or _is_mixed(info):
        return _text_key
    return LEAVES.get(type(info))


def _is_mixed(info: Any) -> bool:
    """Return whether a Literal has both numbers and texts."""
    return len({type(value) for value in getattr(info, "values", ())}) > 1


def _text_key(original: Any, decoded: Any) -> Problem | None:
    return None if original == decoded else ((), _TEXT_KEYS)


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

    def __call__(self, original: Any, decoded: Any) -> Problem | None:
        if not isinstance(original, Mapping):
            return (), OTHER_CLASS
        if len(original) > len(decoded):
            return (), _EXTRA
        for name, check in self._fields.items():
            if check and name in original and (problem := check(original[name], decoded[name])):
                return below(name, problem)
        return None


class _Record:
    """A dataclass, a class of attrs or a Struct."""

    def __init__(self, kind: type) -> None:
        self._names: set[str] = set()
        self._checked: list[tuple[str, str, Check]] = []
        # Both can change a value: `__post_init__`, and the converters of attrs.
        self._may_change = hasattr(kind, "__post_init__") or hasattr(kind, "__attrs_attrs__")

    def add(self, name: str, written: str, check: Check | None) -> None:
        self._names.add(written)
        if check is None and self._may_change:
            check = _equal
        if check is not None:
            self._checked.append((name, written, check))

    def __call__(self, original: Any, decoded: Any) -> Problem | None:
        if isinstance(original, Mapping):
            return self._mapping(original, decoded)
        if type(original) is not type(decoded):
            return (), OTHER_CLASS
        for name, _, check in self._checked:
            problem = check(getattr(original, name, None), getattr(decoded, name, None))
            if problem is not None:
                return below(name, problem)
        return None

    def _mapping(self, original: Mapping[Any, Any], decoded: Any) -> Problem | None:
        if any(name not in self._names for name in original):
            return (), _EXTRA
        for name, written, check in self._checked:
            if written in original:
                problem = check(original[written], getattr(decoded, name, None))
                if problem is not None:
                    return below(name, problem)
        return None


def _equal(original: Any, decoded: Any) -> Problem | None:
    """Detect a change by a hook. Another class is a conversion, such as a list to a tuple."""
    return None if type(original) is not type(decoded) or original == decoded else ((), CHANGES)


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
