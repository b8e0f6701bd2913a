"""Arguments and results keep their types; values that do not fit are refused before storing."""

import enum
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import pytest

from tenure import ArgumentsError, ConfigError, ResultUnavailable, Tenure, TooLarge


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Address:
    city: str
    lines: list[str] = field(default_factory=list)


class User(msgspec.Struct):
    id: uuid.UUID
    home: Address | None = None


VALUES = [
    (int, 7),
    (float, 1.5),
    (str, "naïve \N{SNOWMAN} \0"),
    (bytes, b"\0\xff"),
    (bool, True),
    (None, None),
    (datetime, datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    (date, date(2026, 1, 2)),
    (timedelta, timedelta(hours=1, microseconds=1)),
    (uuid.UUID, uuid.UUID(int=7)),
    (Decimal, Decimal("0.10")),
    (Colour, Colour.RED),
    (Literal["a", "b"], "b"),
    (Address, Address("Oslo", ["a", "b"])),
    (User, User(uuid.UUID(int=1), Address("Rome"))),
    (list[User], [User(uuid.UUID(int=1))]),
    (dict[int, Decimal], {1: Decimal("1.50")}),
    (tuple[int, str], (1, "x")),
    (set[int], {1, 2}),
    (int | None, None),
    (Any, {"a": [1, None, "x"]}),
    (int, 2**70),
    (Annotated[int, msgspec.Meta(ge=0)], 0),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
async def test_a_value_comes_back_unchanged(app: Tenure, clock, kind, value):
    received = []

    async def echo(value):
        received.append(value)
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    task = app.task(echo)
    async with app.worker():
        job = await task.enqueue(value)
        await clock.advance(0.1)
        result = await job.result(0)
    assert received == [value]
    assert result == value
    assert type(received[0]) is type(result) is type(value)


async def test_pydantic_models_come_back_unchanged(app: Tenure, clock):
    pydantic = pytest.importorskip("pydantic")

    class Order(pydantic.BaseModel):
        number: int
        when: datetime

    @app.task
    async def ship(order: Order) -> Order:
        return order.model_copy(update={"number": order.number + 1})

    order = Order(number=1, when=datetime(2026, 1, 2, tzinfo=UTC))
    async with app.worker():
        job = await ship.enqueue(order)
        await clock.advance(0.1)
        assert await job.result(0) == order.model_copy(update={"number": 2})
    with pytest.raises(ArgumentsError):
        await ship.enqueue({"number": "x"})


class Point:
    """A model like those of Pydantic, for environments without it."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None

    def model_dump(self, mode: str) -> dict[str, int]:
        assert mode == "json"
        return {"x": self.x}

    @classmethod
    def model_validate(cls, value: Any) -> "Point":
        if not isinstance(value.get("x"), int):
            raise ValueError("x must be a number")  # noqa: TRY004 - as Pydantic does
        return cls(value["x"])


async def test_models_that_write_and_read_themselves(app: Tenure, clock):
    @app.task
    async def move(points: list[Point]) -> Point:
        return Point(sum(point.x for point in points))

    async with app.worker():
        job = await move.enqueue([Point(1), Point(2)])
        await clock.advance(0.1)
        assert (await job.result(0)).x == 3
    with pytest.raises(ArgumentsError, match="x must be a number"):
        await move.enqueue([Point("one")])


async def test_every_kind_of_parameter_is_passed(app: Tenure, clock):
    calls = []

    @app.task
    async def call(a: int, /, b: int = 2, *rest: int, c: int, d: int = 4, **named: int) -> None:
        calls.append((a, b, rest, c, d, named))

    async with app.worker():
        for args, named in [
            ((1,), {"c": 3}),
            ((1, 20, 30, 40), {"c": 3, "d": 50, "e": 60}),
            ((1,), {"b": 20, "c": 3, "a": 70}),
        ]:
            await call.enqueue(*args, **named)
            await clock.advance(0.1)
    assert calls == [
        (1, 2, (), 3, 4, {}),
        (1, 20, (30, 40), 3, 50, {"e": 60}),
        (1, 20, (), 3, 4, {"a": 70}),
    ]


async def test_a_default_is_that_of_the_version_that_runs_it(app: Tenure, make, clock):
    older = await make()

    @older.task(name="send")
    async def send_before(user: int, template: str = "old") -> str:
        return template

    @app.task(name="send")
    async def send(template: str = "new", urgent: bool = False, *, user: int) -> str:
        return f"{template} {urgent} {user}"

    job = await send_before.enqueue(7)
    async with app.worker():
        await clock.advance(0.1)
        assert await job.result(0) == "new False 7"


@pytest.mark.parametrize(
    ("args", "named", "problem"),
    [
        ((), {}, "missing a required argument: 'n'"),
        ((1, 2, 3), {}, "too many positional"),
        ((1,), {"x": 1}, "unexpected keyword"),
        (("7",), {}, "Expected `int`, got `str`"),
        ((1, datetime(2026, 1, 1)), {}, "Expected `str"),  # noqa: DTZ001 - it is a mistake
        ((object(),), {}, "'object' has no JSON form.* - at `\\$.n`"),
        ((1, "\udcff"), {}, "surrogates"),
    ],
)
async def test_arguments_that_do_not_fit_are_refused(app: Tenure, args, named, problem):
    @app.task
    async def work(n: int, text: Annotated[str, msgspec.Meta(max_length=5)] = "") -> None: ...

    with pytest.raises(ArgumentsError, match=problem) as caught:
        await work.enqueue(*args, **named)
    assert caught.value.task == "work"
    assert isinstance(caught.value, TypeError)
    with pytest.raises(ArgumentsError):
        work.request(*args, **named)
    assert await app.jobs() == []


async def test_arguments_that_contain_themselves_are_refused(app: Tenure):
    @app.task
    async def work(n: list) -> None: ...

    loop: list = []
    loop.append(loop)
    with pytest.raises(ArgumentsError, match="contain themselves"):
        await work.enqueue(loop)


async def test_a_float_without_a_json_form_is_refused(app: Tenure):
    @app.task
    async def work(n: float) -> None: ...

    with pytest.raises(ArgumentsError):
        await work.enqueue(float("nan"))


async def test_arguments_above_the_limit_are_refused(make):
    app = await make(payload_limit=1024)

    @app.task
    async def work(text: str) -> None: ...

    room = 1024 - len('{"text":""}')
    await work.enqueue("x" * room)
    with pytest.raises(TooLarge) as caught:
        await work.enqueue("x" * (room + 1))
    assert (caught.value.size, caught.value.limit) == (1025, 1024)
    assert caught.value.setting == "payload_limit"
    assert "'work': 1,025 bytes, and payload_limit allows 1,024" in str(caught.value)
    assert len(await app.jobs()) == 1


async def test_a_result_of_an_unknown_task_is_a_plain_value(app: Tenure, make, clock):
    @app.task
    async def work() -> Address:
        return Address("Oslo")

    job = await work.enqueue()
    async with app.worker():
        await clock.advance(0.1)
    stranger = await make()
    assert await (await stranger.job(job.id)).result() == {"city": "Oslo", "lines": []}
    assert await (await app.job(job.id)).result() == Address("Oslo")


@pytest.mark.parametrize(("kind", "value"), [(int, "x"), (float, float("nan")), (Address, {})])
async def test_a_result_of_another_type_raises_an_error(app: Tenure, clock, kind, value):
    async def work():
        return value

    work.__annotations__ = {"return": kind}
    task = app.task(work)
    async with app.worker():
        job = await task.enqueue()
        await clock.advance(0.1)
        with pytest.raises(ResultUnavailable, match="does not fit the return type") as caught:
            await job.result(0)
    assert (job.state, job.attempt) == ("succeeded", 1)
    assert caught.value.value == (None if value != value else value)  # noqa: PLR0124 - NaN is null


async def test_a_coroutine_as_a_result_is_explained(app: Tenure):
    async def really() -> int:
        return 1

    @app.task
    def work():
        return really()

    async with app.worker():
        job = await (await work.enqueue()).wait(10)
    assert (job.state, job.reason, job.attempt) == ("failed", "rejected", 1)
    assert "declare it with 'async def'" in job.error


class CallableObject:
    def __call__(self, number: int) -> int:
        return number


@pytest.mark.parametrize(
    "declare",
    [
        lambda app: app.task(lambda: None),
        lambda app: app.task(7),
        lambda app: app.task(name="")(nothing),
        lambda app: app.task(name="x" * 201)(nothing),
        lambda app: app.task(queue="@timers")(nothing),
        lambda app: app.task(queue="")(nothing),
        lambda app: app.task(priority=10)(nothing),
        lambda app: app.task(priority=True)(nothing),
        lambda app: app.task(timeout=0)(nothing),
        lambda app: app.task(timeout="soon")(nothing),
        lambda app: app.task(retention=-1)(nothing),
        lambda app: app.task(retry=-3)(nothing),
        lambda app: app.task(name="partial")(partial(nothing)),
        lambda app: app.task(name="object")(CallableObject()),
        lambda app: app.task(name="min")(min),
    ],
)
async def test_invalid_tasks_are_refused(app: Tenure, declare):
    with pytest.raises(ConfigError):
        declare(app)


async def test_two_tasks_with_one_name_are_refused(app: Tenure):
    app.task(nothing)
    with pytest.raises(ConfigError, match="there is a task 'nothing' already"):
        app.task(nothing)
    app.task(name="another")(nothing)


async def test_an_unresolvable_annotation_is_refused(app: Tenure):
    async def work(x: "Missing") -> None: ...  # noqa: F821 - that is the point

    with pytest.raises(ConfigError, match="Import it at the top of the module"):
        app.task(work)


async def test_a_task_is_still_a_function(app: Tenure):
    @app.task
    async def double(n: int) -> int:
        """Doubles."""
        return 2 * n

    assert await double(4) == 8
    assert (double.name, double.__name__, double.__doc__) == ("double", "double", "Doubles.")
    assert repr(double) == "<Task 'double' on queue 'default'>"


async def nothing() -> None: ...
