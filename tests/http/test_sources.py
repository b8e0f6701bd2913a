"""The source of each parameter of a handler, and how requests are parsed."""

import dataclasses
import inspect
from decimal import Decimal
from enum import IntEnum
from typing import Annotated, Any, NewType, TypedDict, Union

import msgspec
import pytest
from fastapi import BackgroundTasks, Body, Path, Query, Response
from pydantic import BaseModel
from starlette.requests import Request
from typing_extensions import TypeAliasType

from tenure import ConfigError, JobContext
from tenure.http import Headers, Owner, Problem
from tenure.http.server.parameters import Parameters, check_json, path_form


@dataclasses.dataclass
class Point:
    x: int = 0


class Model(BaseModel):
    x: int = 0


class Typed(TypedDict):
    x: int


class Record(msgspec.Struct):
    x: int = 0


class OfAttrs:
    __attrs_attrs__ = ()


class Level(IntEnum):
    LOW = 1


Count = NewType("Count", int)
Places = NewType("Places", list[int])
Number = TypeAliasType("Number", int)
Numbers = TypeAliasType("Numbers", list[int])


def taking(kind: Any, default: Any = inspect.Parameter.empty) -> Any:
    """Return a handler of one parameter, called `value`."""

    def handler(value):  # type: ignore[no-untyped-def]
        return value

    if default is not inspect.Parameter.empty:
        handler.__defaults__ = (default,)
    handler.__annotations__ = {"value": kind}
    return handler


def parameters(fn: Any, path: str = "") -> Parameters:
    return Parameters(fn, path, "the handler")


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (int, "query"),
        (str | None, "query"),
        (Union[int, None], "query"),  # noqa: UP007 - people write it so
        (bytes, "query"),
        (Level, "query"),
        (Count, "query"),
        (Number, "query"),
        (Annotated[Count, "a count"], "query"),
        (Annotated[list[int], Query()], "query"),
        (Annotated[list[int] | None, Query()], "query"),
        (Annotated[tuple[int, ...], Query()], "query"),
        (Annotated[int, "first", Body()], "body"),
        (Annotated[int, Path()], "path"),
        (list[int], "body"),
        (dict, "body"),
        (Places, "body"),
        (Numbers, "body"),
        (Any, "body"),
        (int | Point, "body"),
        (Point | None, "body"),
        (Point, "body"),
        (Model, "body"),
        (Typed, "body"),
        (Record, "body"),
        (OfAttrs, "body"),
        (Headers, "headers"),
        (Owner, "owner"),
        (JobContext, "job"),
        (Annotated[JobContext, "mine"], "job"),
    ],
)
def test_the_source_of_a_parameter_follows_from_its_declaration(kind, source):
    path = "/{value}" if source == "path" else ""
    [parameter] = parameters(taking(kind), path).all
    assert parameter.source == source


def test_a_parameter_named_in_the_path_comes_from_the_path():
    [parameter] = parameters(taking(int), "/{value:int}").all
    assert parameter.source == "path"


@pytest.mark.parametrize(
    ("default", "kind", "is_required", "made"),
    [
        (inspect.Parameter.empty, int, True, None),
        (5, int, False, None),
        (None, int | None, False, None),
        (Query(), int, True, None),
        (Query(7), int, False, 7),
        (Query(default_factory=lambda: 8), int, False, 8),
        (5, Annotated[int, Query()], False, None),
        (inspect.Parameter.empty, Annotated[int, Query()], True, None),
        (inspect.Parameter.empty, Annotated[int, Query(default_factory=lambda: 8)], False, 8),
    ],
)
def test_a_parameter_keeps_its_default(default, kind, is_required, made):
    [parameter] = parameters(taking(kind, default)).all
    assert (parameter.default is inspect.Parameter.empty) is is_required
    assert (None if parameter.makes is None else parameter.makes()) == made


def two_bodies(a: Point, b: Model) -> None: ...
def two_headers(a: Headers, b: Headers) -> None: ...
def two_owners(a: Owner, b: Owner) -> None: ...
def two_jobs(a: JobContext, b: JobContext) -> None: ...
def many(*a: int) -> None: ...
def named(**a: int) -> None: ...
def placed(a: int, /) -> None: ...
def of_request(a: Request) -> None: ...
def of_response(a: Response) -> None: ...
def of_tasks(a: BackgroundTasks) -> None: ...
def unknown(a: "Elsewhere") -> None: ...  # noqa: F821 - that is the point
def embedded(a: Annotated[int, Body(embed=True)]) -> None: ...


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (two_bodies, "has two parameters for its body: a and b"),
        (two_headers, "has two parameters for its headers: a and b"),
        (two_owners, "has two parameters for its owner: a and b"),
        (two_jobs, "has two parameters for its job: a and b"),
        (many, "which a request cannot pass by name"),
        (named, "which a request cannot pass by name"),
        (placed, "which a request cannot pass by name"),
        (of_request, "is declared with Request"),
        (of_response, "is declared with Response"),
        (of_tasks, "is declared with BackgroundTasks"),
        (unknown, "use a name that does not exist"),
        (embedded, r"is declared with Body\(\.\.\.\)"),
        (taking(Annotated[list[Point], Query()]), "has the type Point"),
        (taking(Annotated[tuple[int, Point], Query()]), "has the type Point"),
        (taking(Annotated[list[int] | Point, Query()]), "has the type Point"),
        (taking(Annotated[int | complex, Query()]), "has the type"),
    ],
)
def test_unsupported_parameters_of_a_handler_are_refused(fn, message):
    with pytest.raises(ConfigError, match=message):
        parameters(fn)


def test_every_parameter_of_the_path_needs_a_parameter_of_the_handler():
    with pytest.raises(ConfigError, match=r"no parameter for \{month\} of its path"):
        parameters(taking(int), "/{value}/{month}")

    def in_query(month: Annotated[int, Query()]) -> None: ...

    with pytest.raises(ConfigError, match=r"no parameter for \{month\} of its path"):
        parameters(in_query, "/{month}")


def handler(
    year: int,
    first: int = 1,
    price: Decimal = Decimal(0),
    tags: Annotated[list[int] | None, Query(alias="tag")] = None,
    last: str = Query(alias="to"),
    rate: float = 0.5,
) -> None: ...


def read(year: str, query: dict[str, list[str]]) -> dict[str, Any]:
    taken = parameters(handler, "/{year}")
    return taken.read({"year": year}, lambda name: query.get(name, []))


def test_values_are_read_by_their_types():
    assert read("7", {"to": ["x", "y"], "tag": ["1", "2"], "rate": ["1.5"]}) == {
        "year": 7,
        "last": "y",
        "tags": [1, 2],
        "rate": 1.5,
    }


def test_all_invalid_values_are_named_in_order():
    with pytest.raises(Problem) as refused:
        read("x", {"first": ["y"], "tag": ["1", "z"]})
    errors = refused.value.body["errors"]
    assert [error["parameter"] for error in errors] == ["year", "first", "tag", "to"]
    assert errors[-1]["detail"] == "it is missing"
    assert all(error["detail"] for error in errors)
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"rate": float("inf")}, ["rate"]),
        ({"price": Decimal("nan"), "rate": float("nan")}, ["price", "rate"]),
        ({"tags": [1.0, float("inf")]}, ["tag"]),
        ({"year": float("inf")}, ["year"]),
    ],
)
def test_a_number_without_a_form_in_json_is_refused(values, named):
    with pytest.raises(Problem) as refused:
        parameters(handler, "/{year}").payload(values, b"", {}, "")
    errors = refused.value.body["errors"]
    assert [error["parameter"] for error in errors] == named
    assert all(error["detail"] for error in errors)


def full(year: int, body: Point, h: Headers, o: Owner, job: JobContext) -> None: ...


def test_the_stored_arguments_of_a_request():
    taken = parameters(full, "/{year}")
    stored = taken.payload({"year": 7}, b' {"x" : 1}', {"a": "b"}, "ann")
    assert stored == b'{"year":7,"body": {"x" : 1},"h":{"a":"b"},"o":"ann"}'
    assert taken.payload({}, b"", {}, "ann") == b'{"h":{},"o":"ann"}'
    assert parameters(taking(int)).payload({"value": 1}, b"[]", {"a": "b"}, "") == b'{"value":1}'


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("", ""),
        ("/a/{b}", "/a/[^/]+"),
        ("/a/{b:int}/c", "/a/[^/]+/c"),
        ("/{a}/{b:path}", "/[^/]+/.*"),
    ],
)
def test_parameters_of_a_path_match_within_one_segment(path, form):
    assert path_form(path) == form


@pytest.mark.parametrize("body", [b"{", b"[" * 65 + b"]" * 65, b"[" * 100_000, b"\xff"])
def test_invalid_json_is_refused(body):
    with pytest.raises(Problem, match="malformed-request"):
        check_json(body)


def test_json_of_the_greatest_depth_is_read():
    assert check_json(b"[" * 64 + b"]" * 64) is not None
