"""A handler that has returned has succeeded, whatever its result is."""

import enum
from collections import OrderedDict, deque
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pydantic
import pytest

from tenure import ResultUnavailable, Tenure
from tenure.core.jobs.results import shown_result, store_result
from tenure.core.values.json import shown_value
from tenure.core.values.written_result import Written
from tenure.http import Owner
from tenure.observe import ResultNotStored


class Number(int): ...


class Price(Decimal): ...


class Moment(datetime): ...


class Word(enum.StrEnum):
    YES = "yes"


class Camel(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")
    login: pydantic.SecretStr = pydantic.SecretStr("")


PLAIN = [
    ({"by": Owner("ann")}, {"by": "ann"}),
    ([Number(7), Price("1.50")], [7, "1.50"]),
    (Moment(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
    (OrderedDict(a=deque([1])), {"a": [1]}),
    (MappingProxyType({"a": range(2)}), {"a": [0, 1]}),
    ({"a": {}.keys()}, {"a": []}),
    ({Word.YES: Path("a/b")}, {"yes": "a/b"}),
    ([Camel(orderId=7, login="x")], [{"orderId": 7, "login": "**********"}]),
]


@pytest.mark.parametrize(("value", "plain"), PLAIN, ids=[repr(value) for value, _ in PLAIN])
async def test_results_without_a_return_type_come_back_as_plain_values(
    app: Tenure, clock, value, plain
):
    @app.task
    async def give():
        return value

    async with app.worker():
        job = await give.enqueue()
        await clock.advance(0.1)
        assert await job.result(0) == plain


class Base(pydantic.BaseModel):
    name: str


class Secretive(Base):
    internal: str = "x"


class Row:
    """An object like those of an ORM."""

    name = "ann"


@pytest.mark.parametrize("value", [Secretive(name="ann"), Row(), {"name": "ann"}], ids=type)
async def test_a_result_has_the_declared_return_type(app: Tenure, clock, value):
    @app.task
    async def give() -> Base:
        return value

    async with app.worker():
        job = await give.enqueue()
        await clock.advance(0.1)
        assert await job.result(0) == Base(name="ann")
    assert job.record.result == b'{"name":"ann"}'


class Breaking(pydantic.BaseModel):
    name: str

    @pydantic.field_serializer("name")
    def _write(self, name: str) -> str:
        raise ZeroDivisionError(name)


UNWRITABLE = [
    (Any, {"a": [1, object()]}, r"'object' has no JSON form.* - at `\$\.a\[1\]`", None),
    (int, "x", "does not fit the return type: Expected `int`, got `str`", "x"),
    (Base, {"nme": "a"}, r"the return type: Field required - at `\$\.name`", {"nme": "a"}),
    (Base, object(), "does not fit the return type", None),
    (Breaking, Breaking(name="ann"), "ZeroDivisionError", None),
    (bytes | None, "\udcff", "surrogates", None),
]


@pytest.mark.parametrize(("kind", "value", "problem", "kept"), UNWRITABLE, ids=range(6))
async def test_a_result_that_cannot_be_stored_is_explained(
    app: Tenure, clock, caplog, kind, value, problem, kept
):
    events: list[Any] = []
    app.on_event(events.append)

    async def give():
        return value

    give.__annotations__ = {"return": kind}
    task = app.task(give)
    async with app.worker():
        job = await task.enqueue()
        await clock.advance(0.1)
        with pytest.raises(ResultUnavailable, match=problem) as caught:
            await job.result(0)
    assert (job.state, job.attempt, job.failures, job.error) == ("succeeded", 1, 0, None)
    assert caught.value.value == kept
    [not_stored] = [event for event in events if isinstance(event, ResultNotStored)]
    assert (not_stored.task, not_stored.job) == ("give", job.id)
    assert "of task 'give' has succeeded, but its result was not stored: " in caplog.text


async def test_a_result_of_an_older_version_is_explained(app: Tenure, make, clock):
    @app.task(name="give")
    async def before() -> str:
        return "seven"

    async with app.worker():
        job = await before.enqueue()
        await clock.advance(0.1)
    newer = await make()

    @newer.task(name="give")
    async def after() -> int: ...

    with pytest.raises(ResultUnavailable, match="not what task 'give' returns in this") as caught:
        await (await newer.job(job.id)).result(0)
    assert caught.value.value == "seven"


class Public(pydantic.BaseModel):
    number: int
    token: pydantic.SecretStr


class Internal(pydantic.BaseModel):
    token: pydantic.SecretStr
    note: str = pydantic.Field("", exclude=True)


INTERNAL = Internal(token=pydantic.SecretStr("hunter2"), note="hunter2")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Public, INTERNAL),
        (Public | None, INTERNAL),
        (list[Public], [INTERNAL]),
        (dict[str, Public], {"a": INTERNAL}),
        (int, INTERNAL),
        (Any, {"a": [INTERNAL]}),
    ],
    ids=["model", "optional", "list", "dict", "plain", "untyped"],
)
async def test_secrets_and_excluded_fields_of_a_wrong_result_are_not_stored(
    app: Tenure, clock, kind, value
):
    async def give():
        return value

    give.__annotations__ = {"return": kind}
    task = app.task(give)
    async with app.worker():
        job = await task.enqueue()
        await clock.advance(0.1)
        try:
            shown = await job.result(0)
        except ResultUnavailable as error:
            shown = error.value
    assert b"hunter2" not in (job.record.result or b"")
    assert "'token': '**********'" in str(shown)
    assert "hunter2" not in str(shown)


async def test_the_return_value_of_a_timer_is_ignored(app: Tenure, clock):
    events: list[Any] = []
    app.on_event(events.append)

    @app.timer(every="60s")
    async def poll():
        return object()

    async with app.worker():
        await clock.advance(61)
    [run] = await app.jobs(task="@poll")
    assert run.state == "succeeded"
    assert [event for event in events if isinstance(event, ResultNotStored)] == []


def test_both_forms_of_a_result_count_for_its_limit():
    written = Written(sent=b"1" * 10, exact=b"2" * 10)
    assert store_result(written, 20)[1] == ""
    assert "it takes 20 bytes" in store_result(written, 19)[1]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (None, (b"", "")),
        (b"[1]", (b"[1]", "")),
        (b'!{"sent":[1],"exact":[2]}', (b"[1]", "")),
        (b'!{"problem":"it is too large"}', (b"", "it is too large")),
        (b'!{"sent":', (b'!{"sent":', "")),
        (b"!" + b"[" * 100_000, (b"!" + b"[" * 100_000, "")),
    ],
    ids=["none", "plain", "two forms", "a problem", "damaged", "deep"],
)
def test_tools_show_every_stored_result(stored: bytes | None, shown: tuple[bytes, str]):
    assert shown_result(stored) == shown


def test_tools_show_bytes_that_are_not_json():
    assert shown_value(None) is None
    assert shown_value(b'{"image":[1]}') == {"image": [1]}
    assert shown_value(b"\xff" * 1234) == "(1,234 bytes that are not JSON)"
    assert shown_value(b"[" * 100_000) == "(100,000 bytes that are not JSON)"
