"""Kinds of values that users pass to tasks and return from them, one example of each.

`tests/jobs/test_kinds.py` sends them through the store, `tests/http/test_kinds.py` over HTTP.
"""

import enum
import ipaddress
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pydantic
import typing_extensions
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SecretStr,
    Tag,
    computed_field,
    field_serializer,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

__all__ = ["KINDS", "Kind"]

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    """A type, and a value of it."""

    name: str
    type: Any
    value: Any
    returned: Any = ...
    """The value that `result()` returns, if it differs."""
    is_for_fastapi: bool = True
    """Whether FastAPI can read and document it."""

    @property
    def result(self) -> Any:
        return self.value if self.returned is ... else self.returned


# Names of fields.


class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")
    note: str | None = Field(None, alias="theNote")


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    order_id: int
    inner_part: "Camel | None" = None


class ByName(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)
    order_id: int


class InAndOut(BaseModel):
    order_id: int = Field(validation_alias="in", serialization_alias="out")
    more: int = Field(0, validation_alias="moreIn", serialization_alias="moreOut")


class Crossed(BaseModel):
    """One field writes the alias that the other one reads."""

    a: int = Field(validation_alias="x", serialization_alias="y")
    b: int = Field(validation_alias="y", serialization_alias="x")


class Chosen(BaseModel):
    number: int = Field(validation_alias=AliasChoices("number", "no", AliasPath("deep", "no")))


class Pathed(BaseModel):
    first: str = Field(validation_alias=AliasPath("names", 0))
    last: str = Field(validation_alias=AliasPath("names", 1))
    city: str = Field("", validation_alias=AliasPath("home", "city"))


# Fields that are written, and fields that are not.


class Excluding(BaseModel):
    a: int
    cache: int = Field(default=0, exclude=True)


class Computing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field
    @property
    def double(self) -> int:
        return 2 * self.a


class Caching(BaseModel):
    a: int

    @computed_field
    @cached_property
    def double(self) -> int:
        return 2 * self.a


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Allowing(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int


class Private(BaseModel):
    a: int
    _seen: list[int] = PrivateAttr(default_factory=list)
    _key: uuid.UUID = PrivateAttr(default_factory=uuid.uuid4)


class Login(BaseModel):
    user: str
    password: SecretStr
    pin: pydantic.SecretBytes = pydantic.SecretBytes(b"")


class Rounding(BaseModel):
    price: float

    @field_serializer("price")
    def _round(self, price: float) -> float:
        return round(price, 1)


class Wrapped(BaseModel):
    a: int

    @model_serializer
    def _write(self) -> dict[str, Any]:
        return {"wrapped": {"a": self.a}}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        return data["wrapped"] if isinstance(data, dict) and "wrapped" in data else data


class Checked(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def _check(self) -> "Checked":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    when: datetime
    size: tuple[int, int]


Seconds = Annotated[
    datetime,
    PlainSerializer(lambda when: when.timestamp(), return_type=float),
    BeforeValidator(
        lambda when: datetime.fromtimestamp(when, UTC) if isinstance(when, float) else when
    ),
]


class Timed(BaseModel):
    when: Seconds


class OfNames(BaseModel):
    model_config = ConfigDict(validate_by_alias=False, validate_by_name=True)
    order_id: int = Field(alias="orderId")


# Several models.


class Cat(BaseModel):
    kind: Literal["cat"] = Field("cat", alias="type")
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = Field("dog", alias="type")
    tricks: list[str] = []


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Circle(BaseModel):
    radius: float


class Square(BaseModel):
    side: float


def _shape(value: Any) -> str:
    names = value if isinstance(value, dict) else value.__dict__
    return "circle" if "radius" in names else "square"


Shape = Annotated[
    Annotated[Circle, Tag("circle")] | Annotated[Square, Tag("square")], Discriminator(_shape)
]


class Household(BaseModel):
    pets: dict[str, Pet]
    first: Cat | Dog | None = None


class Tree(BaseModel):
    name: str
    leaves: "list[Tree]" = []


class Page(BaseModel, Generic[T]):
    items: list[T]
    next_page: int | None = Field(None, alias="nextPage")


class Names(RootModel[list[str]]):
    pass


class Prices(RootModel[dict[str, Decimal]]):
    pass


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(enum.StrEnum):
    YES = "yes"


class Values(BaseModel):
    decimal: Decimal = Decimal("0.10")
    id: uuid.UUID = uuid.UUID(int=7)
    when: datetime = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    day: date = date(2026, 1, 2)
    colour: Colour = Colour.RED
    level: Level = Level.HIGH
    data: bytes = b"text"
    path: Path = Path("a/b")
    length: timedelta = timedelta(hours=1, microseconds=1)
    numbers: set[int] = {3, 1, 2}
    words: frozenset[str] = frozenset({"b", "a"})
    pair: tuple[int, str] = (1, "x")
    by_number: dict[int, Decimal] = {1: Decimal("1.50")}
    link: pydantic.HttpUrl = pydantic.HttpUrl("https://example.org/a")
    address: ipaddress.IPv4Address = ipaddress.IPv4Address("127.0.0.1")
    anything: Any = None


@pydantic.dataclasses.dataclass
class Measured:
    length: float
    made_by: str = Field(default="", alias="madeBy")


@dataclass
class Box:
    owner: Aliased
    others: list[Aliased] = field(default_factory=list)


class Row(typing_extensions.TypedDict):
    id: int
    owner: Aliased


class Pair(NamedTuple):
    number: int
    owner: Frozen


# Without Pydantic.


@dataclass
class Address:
    city: str
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    city: str


class Plain(TypedDict):
    id: int
    name: typing_extensions.NotRequired[str]


class Point(NamedTuple):
    x: int
    y: int = 0


class Renamed(msgspec.Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    order_id: int
    of_default: int = 5


class Put(msgspec.Struct, tag=True):
    key: str


class Get(msgspec.Struct, tag="get"):
    key: str


class Rowed(msgspec.Struct, array_like=True):
    a: int
    b: str = ""


class Around(msgspec.Struct):
    """A Struct with a model inside, which Pydantic does not know."""

    pets: list[Camel]
    login: Login | None = None


def _of_attrs() -> list[Kind]:
    """Return a class of attrs, which msgspec knows, where that is installed."""
    try:
        attrs = import_module("attrs")
    except ImportError:
        return []

    class Car:
        seats: int
        doors: list[str] = attrs.Factory(list)

    car = attrs.define(Car)
    return [Kind("attrs", car, car(5, ["left"]), is_for_fastapi=False)]


UserId = NewType("UserId", int)


def _kinds() -> list[Kind]:
    camel = Camel(orderId=7, innerPart=Camel(orderId=8))
    login = Login(user="ann", password=SecretStr("hunter2"), pin=pydantic.SecretBytes(b"1234"))
    masked = Login.model_validate(login.model_dump(mode="json"))
    private = Private(a=1)
    private._seen.append(1)
    caching = Caching(a=2)
    assert caching.double == 4
    only_starlette = {"is_for_fastapi": False}
    return [
        Kind("alias", Aliased, Aliased(orderId=7, theNote="x")),
        Kind("alias_generator", Camel, camel),
        Kind("populate_by_name", ByName, ByName(order_id=7)),
        Kind("two aliases", InAndOut, InAndOut.model_validate({"in": 7, "moreIn": 8})),
        Kind("crossed aliases", Crossed, Crossed.model_validate({"x": 1, "y": 2})),
        Kind("AliasChoices", Chosen, Chosen(no=7)),
        Kind("AliasPath", Pathed, Pathed(names=["Ann", "Lee"], home={"city": "Oslo"})),
        Kind("names only", OfNames, OfNames(order_id=7)),
        Kind("exclude", Excluding, Excluding(a=1, cache=5), Excluding(a=1)),
        Kind("computed_field", Computing, Computing(a=1)),
        Kind("cached computed_field", Caching, caching),
        Kind("extra forbid", Forbidding, Forbidding(a=1)),
        Kind("extra allow", Allowing, Allowing(a=1, b={"c": 2})),
        Kind("frozen", Frozen, Frozen(a=1)),
        Kind("private attributes", Private, private, Private(a=1)),
        Kind("SecretStr", Login, login, masked),
        Kind("field_serializer", Rounding, Rounding(price=1.25), Rounding(price=1.2)),
        Kind("model_serializer", Wrapped, Wrapped(a=1)),
        Kind("model_validator", Checked, Checked(low=1, high=2)),
        # FastAPI refuses text for a datetime of a strict model; Pydantic's own JSON does not.
        Kind(
            "strict",
            Strict,
            Strict(when=datetime(2026, 1, 1, tzinfo=UTC), size=(1, 2)),
            **only_starlette,
        ),
        Kind("custom form", Timed, Timed(when=datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC))),
        Kind("discriminated union", Pet, Dog(tricks=["sit"])),
        Kind("callable discriminator", Shape, Square(side=2)),
        Kind("untagged union", Circle | Square, Square(side=2)),
        Kind("union with plain types", Square | int | list[Circle], [Circle(radius=1)]),
        Kind("nested union", Household, Household(pets={"rex": Dog()}, first=Cat(lives=1))),
        Kind("optional model", Camel | None, camel),
        Kind("no model", Camel | None, None),
        Kind("recursive", Tree, Tree(name="a", leaves=[Tree(name="b")])),
        Kind("generic", Page[Camel], Page[Camel](items=[camel], nextPage=2)),
        Kind("RootModel of a list", Names, Names(["a", "b"])),
        Kind("RootModel of a dict", Prices, Prices({"a": Decimal("1.50")})),
        Kind("every value", Values, Values(anything={"a": [1, None]})),
        Kind("list of models", list[Camel], [camel]),
        Kind("dict of models", dict[str, Camel], {"a": camel}),
        Kind("tuple of models", tuple[Camel, ...], (camel,)),
        Kind("set of models", frozenset[Frozen], frozenset({Frozen(a=1), Frozen(a=2)})),
        Kind("constrained", Annotated[int, Field(gt=0)], 7),
        Kind("url", pydantic.HttpUrl, pydantic.HttpUrl("https://example.org/a")),
        Kind("pydantic dataclass", Measured, Measured(1.5, madeBy="ann")),
        Kind("dataclass with models", Box, Box(Aliased(orderId=1), [Aliased(orderId=2)])),
        Kind("TypedDict with a model", Row, Row(id=1, owner=Aliased(orderId=1))),
        Kind("NamedTuple with a model", Pair, Pair(1, Frozen(a=1))),
        Kind("Struct with models", Around, Around([camel], None), **only_starlette),
        Kind("Struct with a secret", Around, Around([], login), Around([], masked), False),
        Kind("dataclass", Address, Address("Oslo", ["a", "b"])),
        Kind("dataclass with slots", Slotted, Slotted(city="Oslo")),
        Kind("TypedDict", Plain, {"id": 1}, **only_starlette),
        Kind("NamedTuple", Point, Point(1, 2)),
        Kind("Struct rename", Renamed, Renamed(7), **only_starlette),
        Kind("Struct tag", Put | Get, Get("a"), **only_starlette),
        Kind("Struct array_like", list[Rowed], [Rowed(1, "x")], **only_starlette),
        Kind("NewType", dict[str, UserId], {"a": UserId(1)}),
        Kind("Literal", list[Literal["a", "b"]], ["b"]),
        Kind("enums", dict[Word, list[Level | Colour]], {Word.YES: [Level.HIGH]}, **only_starlette),
        Kind("enum", list[Colour], [Colour.RED]),
        Kind("paths", dict[str, Path], {"a": Path("b/c")}),
        Kind("addresses", list[ipaddress.IPv6Address], [ipaddress.IPv6Address("::1")]),
        Kind("abstract", Mapping[str, Sequence[int]], {"a": [1, 2]}),
        Kind("iterable", Iterable[int], [1, 2], **only_starlette),
        Kind("object", dict[str, object], {"a": [1, None]}, **only_starlette),
        Kind("plain dict", dict, {"a": {"b": 1}}),
        Kind("plain list", list, [1, "x", None]),
        Kind("Any", Any, {"a": [1, None, "x"]}),
        *_of_attrs(),
    ]


KINDS = _kinds()
