"""Promises about Pydantic models, beyond that each kind of them arrives."""

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from tenure import ArgumentsError, Tenure


class Order(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    order_id: int
    gift_note: str = ""


@pytest.mark.parametrize(
    "order_like",
    [
        Order(orderId=7, giftNote="x"),
        {"orderId": 7, "giftNote": "x"},
        {"order_id": 7, "gift_note": "x"},
        {"orderId": "7", "gift_note": "x"},
    ],
    ids=["model", "by alias", "by name", "mixed"],
)
async def test_a_model_is_accepted_by_name_and_by_alias(app: Tenure, clock, order_like):
    received = []

    @app.task
    async def ship(order: Order) -> None:
        received.append(order)

    async with app.worker():
        await ship.enqueue(order_like)
        await clock.advance(0.1)
    assert received == [Order(orderId=7, giftNote="x")]


async def test_a_job_may_be_older_than_an_alias(app: Tenure, make, clock):
    class Before(BaseModel):
        order_id: int

    older, received = await make(), []

    @older.task(name="ship")
    async def ship_before(order: Before) -> Before: ...

    @app.task
    async def ship(order: Order) -> Order:
        received.append(order)
        return order

    job = await ship_before.enqueue(Before(order_id=7))
    async with app.worker():
        await clock.advance(0.1)
    assert (await job.wait(0)).state == "succeeded", job.error
    assert received == [Order(orderId=7)]


class Counting(BaseModel):
    """A model whose validator returns another value each time."""

    number: Annotated[int, AfterValidator(lambda number: number + 1)]


class Event(BaseModel):
    name: str


class Payment(Event):
    amount: int


class Careless(BaseModel):
    number: int

    @model_validator(mode="before")
    @classmethod
    def _check(cls, data: Any) -> Any:
        return {"number": data["no"]}


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Counting, Counting(number=1), r"not the same after .* - at `\$\.value\.number`"),
        (list[Event], [Payment(name="a", amount=1)], r"not the same .*`\$\.value\[0\]\.amount`"),
        (Careless, {"number": 1}, "KeyError: 'no'"),
        (Order, {"giftNote": 3}, r"Field required - at `\$\.value\.orderId`; Input should be"),
        (Annotated[int, Field(gt=0)], 0, r"greater than 0 - at `\$\.value`"),
        (Order | None, object(), r"at `\$\.value`"),
    ],
    ids=["validator", "subclass", "error", "wrong", "constraint", "object"],
)
async def test_a_model_that_would_not_arrive_unchanged_is_refused_with_the_field(
    app: Tenure, kind, value, problem
):
    async def work(value) -> None: ...

    work.__annotations__ = {"value": kind}
    task = app.task(work)
    with pytest.raises(ArgumentsError, match=problem):
        await task.enqueue(value)
    assert await app.jobs() == []


async def test_a_validator_that_changes_plain_values_is_applied_once(app: Tenure, clock):
    @app.task
    async def work(number: Annotated[int, AfterValidator(lambda number: number + 1)]) -> int:
        return number

    async with app.worker():
        job = await work.enqueue(1)
        await clock.advance(0.1)
    assert job.record.payload == b'{"number":1}'


async def test_sets_in_models_have_one_order_for_unique_keys(app: Tenure):
    class Numbers(BaseModel):
        numbers: set[int]
        by_number: dict[int, int] = {}

    ordered, other = {8, 0}, {0, 8}
    assert list(ordered) != list(other)

    @app.task
    async def work(value: Numbers, plain: dict[int, int]) -> None: ...

    task = work.using(unique="a")
    first = await task.enqueue(Numbers(numbers=ordered), {1: 2, 3: 4})
    again = await task.enqueue(Numbers(numbers=other), {3: 4, 1: 2})
    assert again.id == first.id


@pytest.mark.parametrize("executor", ["auto", "thread"])
async def test_arguments_that_cannot_be_read_fail_the_job_at_once(
    app: Tenure, make, clock, executor
):
    older = await make()

    @older.task(name="work")
    async def before(number: str, gone: int = 0) -> None: ...

    ran = []

    def plain(number: int) -> None:
        ran.append(number)

    async def on_loop(number: int) -> None:
        ran.append(number)

    if executor == "thread":
        app.task(name="work", executor="thread")(plain)
    else:
        app.task(name="work")(on_loop)
    job = await before.enqueue("seven", gone=1)
    async with app.worker():
        await clock.advance(0.1)
        await job.wait(10 if executor == "thread" else 0)
    assert (job.state, job.reason, job.attempt, job.failures) == ("failed", "arguments", 1, 1)
    assert "do not fit task 'work'" in (job.error or "")
    assert ran == []


async def test_an_arguments_error_that_the_handler_raises_is_retried(app: Tenure, clock):
    @app.task
    async def next_step(number: int) -> None: ...

    @app.task(retry=4)
    async def work() -> None:
        await next_step.enqueue("seven")  # type: ignore[arg-type]

    async with app.worker():
        job = await work.enqueue()
        await clock.advance(60)
    assert ((await job.refresh()).attempt, job.reason) == (5, "error")
