"""Every kind of value in signatures goes through the store and comes back."""

from typing import Any

import pytest

from tenure import Tenure
from tests.jobs.kinds import KINDS, Kind


def declared(app: Tenure, kind: Any, received: list[Any]):
    async def echo(value):
        received.append(value)
        return value

    echo.__annotations__ = {"value": kind, "return": kind}
    return app.task(echo)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_every_kind_of_argument_arrives_unchanged(app: Tenure, clock, kind: Kind):
    received: list[Any] = []
    task = declared(app, kind.type, received)
    async with app.worker():
        job = await task.enqueue(kind.value)
        await clock.advance(0.1)
        assert (await job.wait(0)).state == "succeeded", job.error
    assert shown(received) == shown([kind.value])
    assert type(received[0]) is type(kind.value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_result_comes_back_by_its_type(app: Tenure, clock, kind: Kind):
    task = declared(app, kind.type, [])
    async with app.worker():
        job = await task.enqueue(kind.value)
        await clock.advance(0.1)
        result = await job.result(0)
    assert shown(result) == shown(kind.result)
    assert type(result) is type(kind.result)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_equal_arguments_are_the_same_for_a_unique_key(app: Tenure, kind: Kind):
    task = declared(app, kind.type, []).using(unique="only one")
    first = await task.enqueue(kind.value)
    again = await task.enqueue(kind.value)
    assert (again.id, again.is_new) == (first.id, False)


def shown(value: Any) -> Any:
    """Return the public content of a value, without private attributes."""
    return repr(value) if "Private" in repr(value) else value
