"""An argument arrives unchanged, class and type included, or `enqueue` refuses it."""

import enum
import math
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field

from tenure import ArgumentsError, Tenure

PNG = b"\x89PNG\r\n\x1a\n\xff\xfe"
NAN = math.nan


class Upload(BaseModel):
    name: str
    data: bytes


class Parts(BaseModel):
    parts: list[bytes] = []
    last: bytes | None = None


class Base64(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes
    more: list[bytes | None] = []
    secret: pydantic.SecretBytes = pydantic.SecretBytes(b"text")


class ReadsBase64(BaseModel):
    """A model that writes text and reads base64."""

    model_config = ConfigDict(val_json_bytes="base64")
    data: bytes


class ReadsHex(BaseModel):
    model_config = ConfigDict(val_json_bytes="hex")
    data: bytes


class Cat(BaseModel):
    name: str


class Dog(BaseModel):
    name: str


class Quiet(Dog):
    """It has no field of its own."""


class Home(BaseModel):
    pets: dict[str, Cat | Dog] = {}
    pet: Cat | Dog | None = None


class Measure(BaseModel):
    value: float | None = None
    values: list[float | None] = []
    named: dict[str, float | None] = {}


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    meta: dict[str, Any] = {}


class Day(BaseModel):
    day: date | str


class Keyed(BaseModel):
    by_key: dict[int | str, int]


@pydantic.dataclasses.dataclass
class Shape:
    side: float


@pydantic.dataclasses.dataclass
class Circle(Shape):
    pass


class Constants(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")
    value: float


@dataclass
class Base:
    a: int


@dataclass
class More(Base):
    b: int = 5


@dataclass
class Same(Base):
    """It has no field of its own."""


@dataclass
class Doubling:
    a: int
    rows: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.a *= 2


@dataclass
class Checking:
    a: int
    items: set[float] = field(default_factory=set)

    def __post_init__(self) -> None:
        assert self.a


@dataclass
class Tree:
    value: float | None
    leaves: "list[Tree]" = field(default_factory=list)


class Row(TypedDict):
    a: int
    value: float | None


class Branch(TypedDict):
    value: float | None
    leaves: "list[Branch]"


class Chain(NamedTuple):
    value: float | None
    rest: "Chain | None" = None


class Pair(NamedTuple):
    a: int
    value: float | None = None


class Item(msgspec.Struct, rename="camel"):
    the_value: float | None = None
    data: bytes = b""


class Bigger(Item):
    extra: int = 1


class Holder(msgspec.Struct):
    upload: Upload | None = None
    pets: list[Cat] = []


class Word(enum.StrEnum):
    YES = "yes"


ODD_ZONE = timezone(timedelta(hours=5, seconds=30))
ODD_TIME = datetime(2026, 1, 1, tzinfo=ODD_ZONE)
# The second of two, an hour apart, with the same date and time in Oslo.
REPEATED = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Oslo"), fold=1)

REFUSED = {
    "bytes": (Upload, Upload(name="a", data=PNG), "$.value.data"),
    "list of bytes": (Parts, Parts(parts=[b"a", PNG]), "$.value.parts[1]"),
    "optional bytes": (Parts, Parts(last=PNG), "$.value.last"),
    "bytes beside a model": (dict[str, Cat | bytes], {"a": PNG}, "$.value[...]"),
    "bytes in a Struct's model": (Holder, Holder(Upload(name="a", data=PNG)), "$.data"),
    "union of like models": (Cat | Dog, Dog(name="Rex"), "$.value"),
    "like models in a model": (Home, Home(pet=Dog(name="Rex")), "$.value.pet"),
    "like models in a dict": (Home, Home(pets={"a": Dog(name="Rex")}), "$.value.pets[...]"),
    "subclass of a model": (Dog, Quiet(name="Rex"), "$.value"),
    "subclass of a dataclass of Pydantic's": (Shape, Circle(1.0), "$.value"),
    "model NaN": (Measure, Measure(value=NAN), "$.value.value"),
    "model infinity": (Measure, Measure(values=[1.0, math.inf]), "$.value.values[1]"),
    "model dict of NaN": (Measure, Measure(named={"a": -math.inf}), "$.value.named[...]"),
    "untyped NaN": (Loose, Loose(meta={"a": NAN}), "$.value.meta[...]"),
    "untyped bytes": (Loose, Loose(meta={"a": PNG}), "$.value.meta[...]"),
    "text like a date": (Day, Day(day="2020-01-01"), "$.value.day"),
    "date beside text": (Annotated[str | date, Field()], date(2020, 1, 1), "$.value"),
    "model int keys": (Keyed, Keyed(by_key={1: 2}), "$.value.by_key[...]"),
    "NaN": (float | None, NAN, "$.value"),
    "infinity in a list": (list[float | None], [1.0, math.inf], "$.value[1]"),
    "infinity in a dict": (dict[str, float | None], {"a": -math.inf}, "$.value[...]"),
    "NaN in a tuple": (tuple[int, float | None], (1, NAN), "$.value[1]"),
    "NaN in a set": (set[float | None], {NAN}, "$.value[...]"),
    "NaN in a dataclass": (Tree, Tree(1.0, [Tree(NAN)]), "$.value.leaves[0].value"),
    "NaN in a TypedDict": (Row, {"a": 1, "value": NAN}, "$.value.value"),
    "NaN in a NamedTuple": (Pair, Pair(1, NAN), "$.value[1]"),
    "NaN in a recursive TypedDict": (
        Branch,
        {"value": 1.0, "leaves": [{"value": NAN, "leaves": []}]},
        "$.value.leaves[0].value",
    ),
    "NaN in a recursive NamedTuple": (Chain, Chain(1.0, Chain(NAN)), "$.value[1][0]"),
    "NaN in a Struct": (Item, Item(NAN), "$.value.the_value"),
    "NaN without a type": (Any, {"a": [1, NAN]}, "$.value[...][1]"),
    "NaN in a plain list": (list, [1, {"a": NAN}], "$.value[1][...]"),
    "NaN as an object": (dict[str, object], {"a": NAN}, "$.value[...]"),
    "int too large for a float": (float, 2**53 + 1, "$.value"),
    "subclass with more fields": (Base, More(1, 9), "$.value"),
    "subclass in a list": (list[Base], [Base(1), More(1, 9)], "$.value[1]"),
    "optional subclass": (Base | None, More(1, 2), "$.value"),
    "subclass with the same fields": (Base, Same(1), "$.value"),
    "subclass of a Struct": (Item, Bigger(1.0), "$.value"),
    "dict with more fields for a dataclass": (Base, {"a": 1, "b": 2}, "$.value"),
    "extra key of a TypedDict": (Row, {"a": 1, "value": None, "b": 2}, "$.value"),
    "extra key in a list": (list[Row], [{"a": 1, "value": None, "b": 2}], "$.value[0]"),
    "changed by __post_init__": (Doubling, Doubling(1), "$.value.a"),
    "changed in a dict": (dict[str, Doubling], {"a": Doubling(1)}, "$.value[...].a"),
    "int keys beside text": (dict[int | str, int], {1: 2}, "$.value[...]"),
    "float keys beside text": (dict[float | str, int], {1.5: 2}, "$.value[...]"),
    "mixed Literal as keys": (dict[Literal[1, "1"], int], {"1": 2}, "$.value[...]"),
    "int keys in a plain dict": (dict, {1: 2}, "$.value[...]"),
    "text for bytes": (bytes, "text", "$.value"),
    "text for bytes in a list": (list[bytes], [b"a", "text"], "$.value[1]"),
    "offset with seconds": (datetime, ODD_TIME, "$.value"),
    "offset with seconds in a list": (list[datetime | None], [None, ODD_TIME], "$.value[1]"),
    "time with such an offset": (time, time(1, tzinfo=ODD_ZONE), "$.value"),
    "such an offset as a key": (dict[datetime, int], {ODD_TIME: 1}, "$.value[...]"),
    "model in a Struct": (Holder, Holder(pets=[Cat(name="a"), Dog(name="b")]), "$.value.pets[1]"),
}


def declared(app: Tenure, kind: Any, received: list[Any]):
    async def work(value) -> None:
        received.append(value)

    work.__annotations__ = {"value": kind}
    return app.task(work)


@pytest.mark.parametrize("case", REFUSED)
async def test_an_argument_that_would_not_arrive_unchanged_is_refused(app: Tenure, case: str):
    kind, value, where = REFUSED[case]
    with pytest.raises(ArgumentsError) as caught:
        await declared(app, kind, []).enqueue(value)
    assert f" - at `{where}" in str(caught.value)
    assert await app.jobs() == []


ARRIVES = {
    "text as bytes": (Upload, Upload(name="a", data=b"text")),
    "base64": (Base64, Base64(data=PNG, more=[PNG, None, b"text"], secret=PNG)),
    "text in base64": (Base64, Base64(data=b"text")),
    "base64 for reading only": (ReadsBase64, ReadsBase64(data=PNG)),
    "text and base64 for reading only": (ReadsBase64, ReadsBase64(data=b"text")),
    "hex for reading only": (ReadsHex, ReadsHex(data=PNG)),
    "all bytes": (Base64, Base64(data=bytes(range(256)))),
    "Base64Bytes": (pydantic.Base64Bytes | None, None),
    "first of like models": (Cat | Dog, Cat(name="Rex")),
    "written constants": (Constants, Constants(value=math.inf)),
    "untyped": (Loose, Loose(meta={"a": [1, 1.5, None, "x"]}, more={"b": True})),
    "date beside text": (Day, Day(day=date(2020, 1, 1))),
    "text": (Day, Day(day="tomorrow")),
    "model text keys": (Keyed, Keyed(by_key={"a": 2})),
    "None": (float | None, None),
    "float": (list[float | None], [1.5, None, -0.0]),
    "Decimal": (Decimal | None, Decimal("Infinity")),
    "subclass of a Struct": (Bigger, Bigger(1.0, PNG, 2)),
    "checked by __post_init__": (Checking, Checking(1, {1.5, 2.5, -3.5})),
    "recursive": (Tree, Tree(None, [Tree(1.5)])),
    "TypedDict": (list[Row], [{"a": 1, "value": None}]),
    "NamedTuple": (Pair, Pair(1, 1.5)),
    "text keys": (dict[int | str, int], {"1": 2}),
    "int keys": (dict[int, float], {1: 2.0}),
    "float keys": (dict[float, list[bytes]], {1.5: [PNG]}),
    "bytes": (list[bytes | None], [PNG, None]),
    "bytearray": (bytearray, bytearray(PNG)),
    "set of bytes": (frozenset[bytes], frozenset({PNG, b"a"})),
    "aware": (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3)))),
    "naive": (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001 - as it is
    "time": (time | None, time(1, 2, 3, 4, tzinfo=UTC)),
    "model in a Struct": (Holder, Holder(Upload(name="a", data=b"b"), [Cat(name="a")])),
    "mixed": (dict[str, float | list[Base | None] | None], {"a": 1.5, "b": [Base(1), None]}),
}


@pytest.mark.parametrize("case", ARRIVES)
async def test_an_argument_arrives_with_its_value_and_its_type(app: Tenure, clock, case: str):
    kind, value = ARRIVES[case]
    received: list[Any] = []
    async with app.worker():
        await declared(app, kind, received).enqueue(value)
        await clock.advance(0.1)
    assert (received, type(received[0])) == ([value], type(value))


CONVERTED = {
    "int for a float": (float, 1, 1.0),
    "list for a tuple": (tuple[float, ...], [1.5], (1.5,)),
    "tuple for a Sequence": (Sequence[float], (1.5,), [1.5]),
    "other sequence": (list[float], deque([1.5]), [1.5]),
    "list for a set": (set[float], [1.5], {1.5}),
    "dict for a dataclass": (Tree, {"value": 1.5}, Tree(1.5)),
    "dict for a Struct": (Item, {"theValue": 1.5}, Item(1.5)),
    "dict for a model in a Struct": (
        Holder,
        Holder(pets=[{"name": "a"}]),
        Holder(pets=[Cat(name="a")]),
    ),
    "text for a datetime": (
        datetime,
        "2026-01-01T00:00:00+00:00",
        datetime(2026, 1, 1, tzinfo=UTC),
    ),
    "text for a UUID": (uuid.UUID, str(uuid.UUID(int=1)).upper(), uuid.UUID(int=1)),
    "text for a path": (Path, "a/b", Path("a/b")),
    "enum for text": (str, Word.YES, "yes"),
    "repeated hour": (datetime, REPEATED, datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
    "repeated hour in a model": (
        Annotated[datetime, Field()],
        REPEATED,
        datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    ),
    "bytes for any bytes": (bytes, bytearray(b"a"), b"a"),
    "read-only mapping": (Mapping[str, float], {"a": 1}, {"a": 1.0}),
    "anything": (Any, {1: (uuid.UUID(int=1), Base(1))}, {"1": [str(uuid.UUID(int=1)), {"a": 1}]}),
    "anything in a model": (
        Loose,
        Loose(meta={"a": uuid.UUID(int=1), "b": (1, {2})}, c=Cat(name="a")),
        Loose(meta={"a": str(uuid.UUID(int=1)), "b": [1, [2]]}, c={"name": "a"}),
    ),
}


@pytest.mark.parametrize("case", CONVERTED)
async def test_an_argument_that_its_type_converts_is_still_accepted(app: Tenure, clock, case: str):
    kind, value, expected = CONVERTED[case]
    received: list[Any] = []
    async with app.worker():
        await declared(app, kind, received).enqueue(value)
        await clock.advance(0.1)
    assert (received, type(received[0])) == ([expected], type(expected))


async def test_each_of_many_arguments_is_compared(app: Tenure):
    @app.task
    async def work(*values: float | None, **named: bytes | None) -> None: ...

    await work.enqueue(1.5, None, a=PNG, b=None)
    with pytest.raises(ArgumentsError, match=r"NaN .* - at `\$\.values\[1\]`"):
        await work.enqueue(1.5, NAN)
    with pytest.raises(ArgumentsError, match=r"Expected bytes.* - at `\$\.named\.b`"):
        await work.enqueue(a=PNG, b="text")  # type: ignore[arg-type]


def test_types_that_lose_nothing_are_not_compared():
    def work(
        a: int,
        b: str | None,
        c: list[str],
        d: dict[str, list[int]],
        e: tuple[bool, ...],
        f: uuid.UUID,
        g: Literal["a", 1],
        h: Word,
        *i: Decimal,
        **j: date,
    ) -> None: ...

    from tenure.core.values.signature import Signature

    assert Signature(work, "work")._lossy == []
