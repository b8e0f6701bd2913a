"""Logs tell what happened, in lines that data cannot forge, and without secrets."""

import asyncio
import logging
import pickle
import re
import traceback
from typing import Any, get_type_hints

import pydantic
import pytest

from tenure import Backoff, JobFailed, Tenure, blocking, current_job
from tenure.app import engine_of
from tenure.core.clock import SystemClock
from tenure.core.redaction import Secret
from tenure.errors import TenureError
from tenure.observe import events
from tenure.stores.connect import connect
from tests.contract.worlds import World

# What would begin a line of its own, steer a terminal, or show in another order than it stands.
HOSTILE = [
    "\n2026-01-01 ERROR root: all is lost",
    "\r\x1b[2K\x1b[1A",
    "\x1b]0;title\x07",
    "\x1b[31mred\x1b[0m",
    "\x9b2J",
    "\u202egnp.exe",
    "\u2066\u2069",
    "a\u2028b\u2029c",
    "\x0b\x0c\x85",
    "\x00\x01\x08\x7f",
    "\ufeff\u200b\u200d",
    "tab\there",
]
BAD = re.compile(r"[^\x20-\x7e\u00a1-\u02ff\ufffd\n]")


@pytest.mark.parametrize("kind", events.Event.__args__, ids=lambda kind: kind.__name__)
def test_each_event_is_one_line_whatever_its_values(kind: type[events.Event]):
    for evil in HOSTILE:
        values = {name: _filled(kind_of_value, evil) for name, kind_of_value in _fields(kind)}
        message = str(kind(**values))
        first, *rest = message.split("\n")
        assert not BAD.search(message), message
        assert all(line.startswith("  | ") for line in rest), message
        assert "ERROR root" not in first or evil[1:] in first  # escaped, but there


def _fields(kind: type[events.Event]) -> list[tuple[str, Any]]:
    """Return the fields of an event, also those that it has in common with others."""
    hints = get_type_hints(kind)
    return [(name, hints[name]) for name in kind.__struct_fields__]


def _filled(annotation: Any, evil: str) -> Any:
    if "tuple" in str(annotation):
        return (evil, evil)
    return 1 if "int" in str(annotation) or "float" in str(annotation) else evil


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    shown = logging.Formatter("%(levelname)s %(name)s: %(message)s")
    return "\n".join(
        shown.format(record) for record in caplog.records if record.name == "tenure"
    ).split("\n")


async def test_errors_that_handlers_raise_cannot_forge_a_line(real_world: World, caplog):
    caplog.set_level(logging.DEBUG)
    app = Tenure(real_world.unopened())
    evil = "".join(HOSTILE)

    @app.task(retry=Backoff(max_attempts=1))
    async def failing() -> None:
        current_job().progress(0.5, evil)
        raise RuntimeError(evil)

    async with app, app.worker():
        job = await failing.enqueue()
        with pytest.raises(JobFailed) as caught:
            await job.result(20)
        [attempt] = job.history
    for line in (*lines_of(caplog), job.error or "", attempt.error, str(caught.value)):
        assert not BAD.search(line), line
        assert (
            re.match(r"(DEBUG|INFO|WARNING|ERROR) tenure: |  \| ", line) or "RuntimeError" in line
        )
    forged = [line for line in lines_of(caplog) if line.startswith("2026-01-01 ERROR root")]
    assert forged == []


class Account(pydantic.BaseModel):
    password: str
    pin: int


async def test_arguments_and_results_are_in_no_log(real_world: World, caplog):
    caplog.set_level(logging.DEBUG)
    app = Tenure(real_world.unopened())
    canary = "CANARY-0815"

    @app.task
    async def fine(secret: str) -> str:
        current_job().progress(0.5, "half")
        await current_job().save({"secret": secret})
        return secret

    @app.task(retry=Backoff(max_attempts=1))
    async def failing(secret: str, account: Account) -> None:
        hidden = secret
        raise RuntimeError(f"{len(hidden)} characters are too many")

    @app.task(name="picky", retry=Backoff(max_attempts=1))
    async def older(secret: str, account: Any) -> None: ...

    request = failing.request(canary, Account(password=canary, pin=1))
    assert canary not in repr(request)
    async with app:
        jobs = [
            await fine.enqueue(canary),
            await app.enqueue(request),
            await older.enqueue(canary, {"password": canary, "pin": canary}),
        ]
        other = Tenure(real_world.unopened())
        for task in (fine, failing):
            engine_of(other).registry.handlers[task.name] = engine_of(app).registry.handlers[
                task.name
            ]

        @other.task(name="picky", retry=Backoff(max_attempts=1))
        async def picky(secret: str, account: Account) -> None: ...

        async with other, other.worker():
            ends = [await job.wait(20) for job in jobs]
    assert [job.state for job in ends] == ["succeeded", "failed", "failed"]
    assert "account" in (ends[2].error or "")  # it says where, and not what
    assert canary not in caplog.text
    for job in ends:
        assert (
            canary
            not in f"{job!r} {job.error} {job.trace} {job.reason} {job.message} {job.history}"
        )


PASSWORD = "PASSWORD-4711"
URLS = [
    f"redis://ann:{PASSWORD}@127.0.0.1:1/0",
    f"redis://127.0.0.1:1/0?password={PASSWORD}",
    f"rediss://ann:{PASSWORD}@127.0.0.1:1/0",
    f"redis+sentinel://ann:{PASSWORD}@127.0.0.1:1/main/0?sentinel_password={PASSWORD}",
    f"redis+cluster://ann:{PASSWORD}@127.0.0.1:1",
    f"postgresql://ann:{PASSWORD}@127.0.0.1:1/d",
    f"postgresql://ann@127.0.0.1:1/d?password={PASSWORD}",
]


def shown_by(thing: object, depth: int = 6) -> str:
    """Return all that shows of an object to who looks at it and at what it has."""
    texts, seen, layer = [repr(thing), str(thing)], {id(thing)}, [thing]
    for _ in range(depth):
        inner = [value for thing in layer for value in _parts(thing) if id(value) not in seen]
        seen |= {id(value) for value in inner}
        texts += [repr(value) for value in inner]
        layer = inner
    return "\n".join(texts)


def _parts(thing: object) -> list[Any]:
    module = type(thing).__module__
    if isinstance(thing, dict):
        return [*thing, *thing.values()]
    if isinstance(thing, list | tuple | set):
        return [*thing]
    if not module.startswith("tenure"):
        return []
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    fields = [*slots, *getattr(thing, "__struct_fields__", ())]
    values = [getattr(thing, name, None) for name in fields]
    return [*getattr(thing, "__dict__", {}).values(), *values]


def test_the_look_finds_what_is_not_hidden():
    app = Tenure("memory://")
    engine_of(app).config = {"deep": [Secret(1), {"inner": PASSWORD}]}
    assert PASSWORD in shown_by(app)


@pytest.mark.parametrize("url", URLS)
def test_a_password_shows_in_no_object(url: str):
    for thing in (
        Tenure(url),
        Tenure(url).clone(),
        blocking.Tenure(url),
        connect(url, namespace="n", clock=SystemClock()),
        Tenure(url).lock("name"),
    ):
        assert PASSWORD not in shown_by(thing)


@pytest.mark.parametrize("url", URLS)
def test_a_password_is_in_no_pickle(url: str):
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)) as caught:
        pickle.dumps(connect(url, namespace="n", clock=SystemClock()))
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("url", URLS)
async def test_a_password_is_in_no_error_and_no_log(url: str, caplog):
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(False)
    with pytest.raises(TenureError) as caught:
        async with Tenure(url):
            pass
    whole = "".join(traceback.format_exception(caught.value))
    for text in (whole, repr(caught.value), caplog.text):
        assert PASSWORD not in text
    for finding in await connect(url, namespace="n", clock=SystemClock()).examine():
        assert PASSWORD not in repr(finding)


def test_a_secret_shows_nothing():
    secret = Secret(PASSWORD)
    assert secret() == PASSWORD
    assert PASSWORD not in f"{secret} {secret!r} {[secret]}"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(secret)
