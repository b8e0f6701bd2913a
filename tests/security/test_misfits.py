"""A value that does not fit its type is in no log, no event and no error of a job.

Workers of another version read each argument by another type than it was written by.
"""

import enum
import ipaddress
import logging
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from pydantic import BaseModel, ByteSize, ConfigDict, Field

from tenure import Tenure
from tenure.observe import Event

SECRET = "hunter2-7391"


class Colour(enum.Enum):
    RED = "red"


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int = 0


class Square(msgspec.Struct, tag="square"):
    side: int = 0


class Circle(msgspec.Struct, tag="circle"):
    radius: int = 0


class Numbers(BaseModel):
    numbers: dict[str, int] = {}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Pet(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")


class Sized(BaseModel):
    size: ByteSize


class Zoned(BaseModel):
    zone: ZoneInfo


class Named(BaseModel):
    id: UUID


SENT: dict[str, tuple[Any, Any]] = {
    "number": (int, SECRET),
    "literal": (Literal["a"], SECRET),
    "enum": (Colour, SECRET),
    "uuid": (UUID, SECRET),
    "timedelta": (timedelta, SECRET),
    "ipv4": (ipaddress.IPv4Address, SECRET),
    "ipv6 network": (ipaddress.IPv6Network, SECRET),
    "key": (dict[str, int], {SECRET: "x"}),
    "unknown field": (Point, {SECRET: 1}),
    "tag": (Square | Circle, {"type": SECRET}),
    "key in a model": (Numbers, {"numbers": {SECRET: "x"}}),
    "field too many in a model": (Strict, {SECRET: 1}),
    "tag of a model": (Pet, {"pet": {"kind": SECRET}}),
    "size in a model": (Sized, {"size": f"5 {SECRET}"}),
    "zone in a model": (Zoned, {"zone": SECRET}),
    "uuid in a model": (Named, {"id": SECRET}),
    "models in a list": (list[Named], [{"id": SECRET}]),
}


@pytest.mark.parametrize("case", SENT)
async def test_an_argument_that_does_not_fit_is_quoted_nowhere(
    case: str, namespace: str, caplog: pytest.LogCaptureFixture
):
    kind, sent = SENT[case]
    events: list[Event] = []
    older, newer = (Tenure(f"memory://{namespace}") for _ in range(2))
    newer.on_event(events.append)

    @older.task(name="read")
    async def before(x: Any) -> None: ...

    async def read(x: Any) -> None: ...

    read.__annotations__["x"] = kind
    newer.task(read, name="read")
    with caplog.at_level(logging.DEBUG):
        async with older, newer, newer.worker():
            job = await before.enqueue(sent)
            await job.wait(timeout=20)
    assert (job.state, job.reason) == ("failed", "arguments")
    assert job.error
    shown = f"{caplog.text} {events} {job.error} {job.trace} {job.history}"
    assert "hunter2" not in shown, shown


@pytest.mark.parametrize("case", SENT)
async def test_a_result_that_does_not_fit_is_quoted_nowhere(
    case: str, namespace: str, caplog: pytest.LogCaptureFixture
):
    kind, sent = SENT[case]
    events: list[Event] = []
    app = Tenure(f"memory://{namespace}")
    app.on_event(events.append)

    async def give() -> Any:
        return sent

    give.__annotations__["return"] = kind
    task = app.task(give)
    with caplog.at_level(logging.DEBUG):
        async with app, app.worker():
            job = await task.enqueue()
            await job.wait(timeout=20)
    assert job.state == "succeeded"
    assert "ResultNotStored" in str(events)
    assert "hunter2" not in f"{caplog.text} {events} {job.history}"
