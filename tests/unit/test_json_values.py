"""Which part of a value has no JSON form."""

from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from msgspec import Struct

from tenure.core.values.forms import has_pydantic
from tenure.core.values.json import encode, encode_comparable


class Parcel(Struct):
    weight: int
    content: Any


@dataclass
class Order:
    number: int
    parcels: list[Parcel]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (object(), "$"),
        ([1, object()], "$[1]"),
        ({"a": {"b": object()}}, "$.a.b"),
        ({7: object()}, "$[7]"),
        ((1, {"a": object()}), "$[1].a"),
        ({object()}, "$[...]"),
        (Parcel(1, object()), "$.content"),
        (Order(7, [Parcel(1, 2), Parcel(3, [object()])]), "$.parcels[1].content[0]"),
    ],
    ids=range(8),
)
def test_the_part_without_a_json_form_is_named(value: Any, where: str):
    with pytest.raises(TypeError) as error:
        encode(value)
    assert str(error.value).endswith(f" - at `{where}`")
    assert "'object' has no JSON form" in str(error.value)


class Ann(pydantic.BaseModel):
    age: int
    tags: set[str] = set()


def test_models_compare_by_what_they_hold():
    ann, same = Ann(age=1, tags={"a", "b"}), Ann(age=1, tags={"b", "a"})
    assert encode_comparable([ann]) == encode_comparable([same])
    assert encode_comparable([ann]) != encode_comparable([Ann(age=2, tags={"a", "b"})])
    assert encode_comparable([ann]) != encode_comparable([Ann(age=1)])


@dataclass
class Unresolved:
    part: "Missing"  # noqa: F821 - on purpose


def test_a_type_whose_hints_cannot_be_resolved_is_not_one_of_pydantic():
    assert not has_pydantic(Unresolved, set())
