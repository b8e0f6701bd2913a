"""A handler gets the values of the request, by its types, wherever it runs."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Annotated, Any, Literal
from uuid import UUID

import httpx2
import msgspec
import pytest
from fastapi import Body, Cookie, Depends, File, Form, Header, Path, Query, Security
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from tenure import ConfigError, JobContext, Tenure
from tenure.http import AsyncRouter, Headers, Owner
from tests.http.service import FACES, Face, as_face
from tests.http.wire import client_of

Ask = Callable[..., Any]


class Account(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    password: SecretStr
    pin: SecretStr = Field(alias="p-i-n")
    since: dt.date = dt.date(2020, 1, 1)


@dataclass
class Point:
    x: int
    y: int = 0


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.fixture(params=FACES)
async def ask(request: pytest.FixtureRequest, namespace: str):
    """Declare a handler, send it one request, and return the answer with its result."""
    face: Face = request.param

    async def ask(
        fn: Callable[..., Any], sent: str, *, method: str = "POST", path: str = "", **options: Any
    ) -> httpx2.Response:
        app = Tenure(f"memory://{namespace}", namespace=namespace, grace=0)
        router = AsyncRouter(app, prefix="/r", headers=["X-One", "accept-language"])
        router.endpoint(method, path, **options.pop("declared", {}))(fn)
        async with app, app.worker(), client_of(as_face(router, face), timeout=20) as client:
            headers = [("Prefer", "wait=20"), *options.pop("headers", ())]
            return await client.request(method, f"/r{sent}", headers=headers, **options)

    return ask


async def test_a_secret_arrives_as_it_was_sent(ask: Ask):
    """Encoded again, the secret would be asterisks."""

    async def handler(body: Account) -> list[str]:
        return [body.password.get_secret_value(), body.pin.get_secret_value(), str(body.since)]

    answer = await ask(handler, "", json={"password": "s3cret", "p-i-n": "1234"})
    assert answer.json() == ["s3cret", "1234", "2020-01-01"]


async def test_a_dataclass_is_a_body(ask: Ask):
    async def point(body: Point) -> Point:
        return Point(body.y, body.x)

    assert (await ask(point, "", json={"x": 1, "y": 2})).json() == {"x": 2, "y": 1}


async def test_plain_lists_and_dicts_are_bodies(ask: Ask):
    async def handler(body: dict[str, list[int]]) -> int:
        return sum(map(sum, body.values()))

    assert (await ask(handler, "", json={"a": [1, 2], "b": [3]})).json() == 6


@pytest.mark.parametrize(("sent", "got"), [(None, "nothing"), ("null", "nothing"), ('"x"', "x")])
async def test_a_body_with_a_default_may_be_missing(ask: Ask, sent: str | None, got: str):
    async def handler(body: Annotated[str | None, Body()] = None) -> str:
        return "nothing" if body is None else body

    options = {} if sent is None else {"headers": [("Content-Type", "application/json")]}
    answer = await ask(handler, "", content=(sent or "").encode(), **options)
    assert (answer.status_code, answer.json()) == (200, got)


async def test_parameters_come_from_path_query_and_headers(ask: Ask):
    async def handler(
        year: int,
        name: str,
        job: JobContext,
        headers: Headers,
        day: dt.date,
        who: UUID,
        colour: Colour,
        kind: Literal["a", "b"] = "a",
        wide: float = 1.5,
        loud: bool = False,
        maybe: int | None = None,
    ) -> list[Any]:
        assert job.attempt == 1
        kept = dict(headers)
        return [year, name, str(day), str(who), colour.value, kind, wide, loud, maybe, kept]

    id_ = "7f7c7d1e-0000-4000-8000-000000000000"
    answer = await ask(
        handler,
        f"/of/2024/a%20b%C3%A4?day=2024-02-29&who={id_}&colour=red&loud=true&unknown=1",
        path="/of/{year}/{name}",
        headers=[("X-One", "1"), ("X-One", "2"), ("X-Two", "3"), ("Authorization", "Basic x")],
    )
    assert answer.status_code == 200, answer.text
    kept = {"x-one": "1, 2"}
    assert answer.json() == [2024, "a bä", "2024-02-29", id_, "red", "a", 1.5, True, None, kept]


async def test_aliases_lists_and_defaults_of_fastapi_marks_are_used(ask: Ask):
    async def handler(
        since: Annotated[int, Query(alias="from")],
        tags: Annotated[list[str], Query()],
        numbers: Annotated[list[int], Query(default_factory=list)],
        most: int = Query(7),
        year: int = Path(),
    ) -> list[Any]:
        return [since, tags, numbers, most, year]

    answer = await ask(handler, "/2024?from=3&tags=a&tags=b&numbers=1&numbers=2", path="/{year}")
    assert (answer.status_code, answer.json()) == (200, [3, ["a", "b"], [1, 2], 7, 2024])
    answer = await ask(handler, "/2024?from=3&tags=a&most=8", path="/{year}")
    assert (answer.status_code, answer.json()) == (200, [3, ["a"], [], 8, 2024])


async def test_the_task_can_still_be_called_as_a_function(ask: Ask):
    async def handler(most: int = Query(7)) -> int:
        return most

    assert (await ask(handler, "")).json() == 7
    router = AsyncRouter(Tenure("memory://"), prefix="/r")
    task = router.post("")(handler)
    assert await task(most=3) == 3
    assert await task() == 7


async def test_a_converter_in_the_path_is_used(ask: Ask):
    async def handler(rest: str, number: int) -> list[Any]:
        return [number, rest]

    path = "/files/{number:int}/{rest:path}"
    answer = await ask(handler, "/files/007/a/b", path=path)
    assert (answer.status_code, answer.json()) == (200, [7, "a/b"])
    assert answer.headers["location"].startswith("/r/jobs/")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_every_method_works_with_and_without_a_body(ask: Ask, method: str):
    def bare() -> str:
        return "bare"

    async def full(body: list[int]) -> int:
        return sum(body)

    assert (await ask(bare, "", method=method)).json() == "bare"
    assert (await ask(full, "", method=method, json=[1, 2])).json() == 3


@pytest.mark.parametrize(
    ("returned", "media_type", "sent"),
    [("a,b\n1,ä", "text/csv", "a,b\n1,ä".encode()), (b"\x00\xff", "image/png", b"\x00\xff")],
)
async def test_a_result_can_have_another_media_type(
    ask: Ask, returned, media_type: str, sent: bytes
):
    def handler():
        return returned

    handler.__annotations__["return"] = type(returned)
    answer = await ask(handler, "", declared={"media_type": media_type})
    assert answer.status_code == 200
    assert answer.headers["content-type"].split(";")[0] == media_type
    assert answer.content == sent


@pytest.mark.parametrize(
    ("sent", "parameter"),
    [("/x?q=1", "year"), ("/1?q=x", "q"), ("/1", "q"), ("/1?q=1&f=nan&b=perhaps", "b")],
)
async def test_invalid_parameters_are_named(ask: Ask, sent: str, parameter: str):
    async def handler(year: int, q: int, f: float = 0, b: bool = False) -> None: ...

    answer = await ask(handler, sent, path="/{year}")
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["parameter"] == parameter
    assert error["detail"]


async def test_invalid_fields_of_a_body_are_pointed_at(ask: Ask):
    async def handler(body: dict[str, list[int]]) -> None: ...

    answer = await ask(handler, "", json={"a/b~c": [1, "secret-value"]})
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    # Without FastAPI msgspec reads it, and names no members of a dict.
    assert error["pointer"] in ("/a~1b~0c/1", "/.../1")
    assert "secret-value" not in answer.text


REFUSED: list[tuple[str, Any]] = [
    ("Depends", Annotated[str, Depends(str)]),
    ("Security", Annotated[str, Security(str)]),
    ("Header", Annotated[str, Header()]),
    ("Cookie", Annotated[str, Cookie()]),
    ("Form", Annotated[str, Form()]),
    ("File", Annotated[bytes, File()]),
    ("Body", Annotated[str, Body(embed=True)]),
    ("SecretStr", SecretStr),
    ("SecretStr", Annotated[list[SecretStr], Query()]),
    ("Account", Annotated[Account, Query()]),
    ("object", object),
]


@pytest.mark.parametrize(("named", "kind"), REFUSED, ids=lambda value: str(value)[:40])
def test_parameters_that_cannot_be_stored_with_a_job_are_refused_at_declaration(
    named: str, kind: Any
):
    async def handler(value) -> None: ...

    handler.__annotations__["value"] = kind
    router = AsyncRouter(Tenure("memory://"), prefix="/r")
    with pytest.raises(ConfigError, match=named):
        router.post("")(handler)


@pytest.mark.parametrize("mark", [Depends(str), Header("x"), Form("x")])
def test_marks_in_the_place_of_a_default_are_refused_too(mark: Any):
    async def handler(value: str = mark) -> None: ...

    router = AsyncRouter(Tenure("memory://"), prefix="/r")
    with pytest.raises(ConfigError, match="value"):
        router.post("")(handler)


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e999"])
async def test_a_number_that_json_cannot_say_is_refused(ask: Ask, number: str):
    async def plain(q: float | None = None) -> str:
        return repr(q)

    async def several(q: Annotated[list[float], Query()]) -> str:
        return repr(q)

    for fn in (plain, several):
        answer = await ask(fn, f"?q={number}")
        assert answer.status_code == 422
        assert [error["parameter"] for error in answer.json()["errors"]] == ["q"]
    assert (await ask(plain, "?q=1.5")).json() == "1.5"


async def test_a_parameter_without_a_type_is_text_of_the_query(ask: Ask):
    async def taking(a, b="2") -> list[str]:  # type: ignore[no-untyped-def]  # that is the point
        return [a, b]

    assert (await ask(taking, "?a=1")).json() == ["1", "2"]


@pytest.mark.parametrize("face", FACES)
async def test_a_handler_may_learn_its_owner(namespace: str, face: Face):
    app = Tenure(f"memory://{namespace}", namespace=namespace, grace=0)
    router = AsyncRouter(app, prefix="/r", owner=lambda: "ann")

    @router.post("")
    async def greet(owner: Owner, word: str = "hello") -> str:
        assert isinstance(owner, Owner)
        return f"{word} {owner}"

    async with app, app.worker(), client_of(as_face(router, face), timeout=20) as client:
        answer = await client.post("/r?owner=eve", headers={"Prefer": "wait=20"})
        assert answer.json() == "hello ann"
        assert await (await greet.enqueue("ben", word="hi")).result(timeout=20) == "hi ben"


def test_a_handler_with_an_owner_parameter_needs_an_owner_function():
    router = AsyncRouter(Tenure("memory://"), prefix="/r")

    async def greet(owner: Owner) -> str:
        return owner

    with pytest.raises(ConfigError, match="has no owner="):
        router.post("")(greet)


async def test_a_handler_with_its_job_is_enqueued_and_called_like_any_other(namespace: str):
    app = Tenure(f"memory://{namespace}", namespace=namespace, grace=0)
    router = AsyncRouter(app, prefix="/r")

    @router.post("/{year}")
    async def build(year: int, body: Point, job: JobContext, colour: str = "red") -> list[Any]:
        return [year, body.x, job.task, colour]

    async with app, app.worker():
        job = await build.enqueue(2024, Point(7), colour="blue")
        assert await job.result(timeout=20) == [2024, 7, "build", "blue"]
        mine = SimpleNamespace(task="mine")
        assert await build(2024, Point(7), job=mine) == [2024, 7, "mine", "red"]


async def test_types_that_fastapi_cannot_read_raise_an_error():
    router = AsyncRouter(Tenure("memory://"), prefix="/r")

    class Change(msgspec.Struct):
        name: str

    async def change(body: Change) -> None: ...

    change.__annotations__["body"] = Change
    router.post("")(change)
    with pytest.raises(ConfigError, match="Use Pydantic models"):
        _ = router.router
    assert router.asgi is not None
