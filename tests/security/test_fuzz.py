"""Any input to a decoder yields a value or one of Tenure's errors, in bounded time."""

import asyncio
import re
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, cast
from uuid import UUID

import click
import msgspec
import pydantic
import pytest

from tenure import ArgumentsError, ConfigError, ResultUnavailable, StoreError, Tenure
from tenure.cli import options as parameters
from tenure.cli.jobs.table import full_document
from tenure.core.clock import SystemClock
from tenure.core.durations import seconds
from tenure.core.ids import is_job_id
from tenure.core.jobs.history import AttemptLine, read_history, write_history
from tenure.core.jobs.records import JobRecord, NewJob, Note
from tenure.core.leases import check_name, check_namespace
from tenure.core.meta import decode_meta
from tenure.core.redaction import redact
from tenure.core.safe_text import indented, safe
from tenure.core.settings import Settings
from tenure.core.sizes import size
from tenure.core.values.signature import Signature
from tenure.jobs import Job, Jobs
from tenure.runtime.attempts.processes.messages import (
    Begun,
    Ended,
    FromChild,
    StoreNote,
    ToChild,
    packed,
)
from tenure.runtime.attempts.running_job import RunningJob
from tenure.runtime.supervised import messages as words
from tenure.stores.connect import connect
from tenure.stores.postgres.notifier import kind_in, topics_in
from tenure.stores.redis.records import insert_words, read_job
from tenure.stores.redis.wire import Wire
from tenure.supervisor.health import decode_health
from tests.rig.sizes import SIZE
from tests.security.mutation import Mutator

ID = "01890a5d-ac96-774b-bcce-b302099a8057"
SLOWEST = 1.0  # seconds of processor time: no reader may go over its input again and again
MEMORY = 200_000  # KiB


class Color(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0.0


class Model(pydantic.BaseModel):
    name: str
    inner: list[int] = []


def everything(
    a: int,
    b: datetime,
    c: Decimal | None,
    d: UUID,
    e: list[Point],
    f: dict[str, set[int]],
    g: bytes,
    h: Model,
    i: Literal["x", "y"] = "x",
    j: timedelta = timedelta(0),
    *more: Color,
    k: Any = None,
    **named: float,
) -> dict[str, Point | None]: ...


SIGNATURE = Signature(everything, "everything")
ARGUMENTS = SIGNATURE.encode_arguments(
    (
        *(7, datetime.fromisoformat("2026-01-02T03:04:05+01:00"), Decimal("1.50"), UUID(int=7)),
        *([Point(1, 2.5)], {"set": {1, 2}}, b"bytes", Model(name="n", inner=[1]), "y"),
        *(timedelta(seconds=90), Color.RED),
    ),
    {"k": [1, {"deep": [None, True, '\u20ac\\"\n']}], "other": 1.5},
)
RESULT = b'{"one":{"x":1,"y":2.5},"two":null}'
PLAIN = b'[1,-2.5e-3,"text \\u20ac \\n",{"a":[true,false,null]},[[[]]]]'
HISTORY = write_history(
    [AttemptLine(1, "rep", 1, 2, "failed", "error"), AttemptLine(2, "r", 3, 4, "lost")]
)
REPORT = b'{"type":"ValueError","message":"no","trace":"Traceback..."}'


def record(**parts: Any) -> JobRecord:
    usual = {"id": ID, "task": "everything", "queue": "q", "priority": 5, "state": "succeeded"}
    return JobRecord(**{**usual, "payload": b"{}", "created": 1, "due": 1, **parts})


HANDLERS: Any = {"everything": NamedTuple("H", [("signature", Signature)])(SIGNATURE)}
JOBS = Jobs(connect("memory://", namespace="n", clock=SystemClock()), HANDLERS)
STRANGER = Jobs(JOBS._store, {})


def checkpoint(data: bytes) -> Any:
    return RunningJob(record(checkpoint=data), _refuse, cast("Any", None), 10).checkpoint


async def _refuse(_: Note) -> bool:
    return False


def documents(data: bytes) -> None:
    """Show a job of which everything that is bytes is bad."""
    bad = dict.fromkeys(("payload", "result", "checkpoint", "error", "history"), data)
    job: Job[Any] = Job(JOBS, record(**bad))
    full_document(job)
    assert len((job.error or "").splitlines()) <= 1


# A record as Redis has it: the part that insert.lua completes, and the part that stays.
_, _, _, _, HEAD, FIXED, *_ = insert_words(
    [NewJob(id=ID, task="t", queue="q", payload=b"{}", tags=("a", "b"), timeout=1.5, retention=7.0)]
)
MIDDLE = (
    1,
    5,
    0,
    9,
    10,
    2,
    11,
    1,
    12,
    "rep",
    13,
    "why",
    0,
    1,
    0,
    0,
    0.5,
    "half",
    b"c",
    None,
    b"e",
    b"",
)
STATE = HEAD + b"".join(msgspec.msgpack.encode(value) for value in (1234567, *MIDDLE[2:]))
STORED = STATE + b"|cut here|" + FIXED


def redis_record(data: bytes) -> None:
    state, _, fixed = data.partition(b"|cut here|")
    job = read_job(state, fixed)
    msgspec.convert(msgspec.to_builtins(job), JobRecord)  # types are what they should be


# hiredis makes room for as many values as it is told, so only a server may tell it.
LONG = re.compile(rb"[*%~>|]\D?\d{6,}")


def wire(data: bytes) -> None:
    class Transport:
        def abort(self) -> None: ...

        def set_protocol(self, protocol: Any) -> None: ...

        def write(self, data: bytes) -> None: ...

    async def receive() -> None:
        stream: Any = NamedTuple("Stream", [("transport", Any)])(Transport())
        wire = Wire(stream, lambda replies: None, lambda *_: None)
        wire.data_received(data)

    if not LONG.search(data):
        asyncio.run(receive())


RESP = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":1\r\n",
    b"$3\r\nabc\r\n",
    b"*2\r\n$1\r\na\r\n:7\r\n",
    b"$-1\r\n",
]


def url(text: str) -> None:
    for whole in (text, f"redis://{text}", f"postgresql://{text}", f"sqlite://{text}"):
        redact(whole)
        with suppress(ConfigError):
            connect(whole, namespace="n", clock=SystemClock())


def options(text: str) -> None:
    for read in (
        parameters.span,
        parameters.name,
        parameters.cursor,
        parameters.memory,
        parameters.names,
    ):
        with suppress(click.BadParameter):
            read(None, None, text)  # type: ignore[arg-type]


def settings(text: str) -> None:
    for name in (
        "replica_ttl",
        "loss_budget",
        "payload_limit",
        "process_memory",
        "namespace",
        "imports",
    ):
        with suppress(ConfigError):
            Settings.read({}, {f"TENURE_{name.upper()}": text})


def texts(text: str) -> None:
    assert len(safe(text).splitlines()) <= 1
    assert all(line.startswith("  | ") for line in indented(text).split("\n")[1:])
    is_job_id(text)
    for check in (check_namespace, lambda name: check_name(name, "it")):
        with suppress(ConfigError):
            check(text)


def times(text: str) -> None:
    for read in (lambda: seconds(text, "it"), lambda: size(text, "it")):
        with suppress(ConfigError):
            read()


def cursor(text: str) -> None:
    app = Tenure("memory://")

    async def ask() -> None:
        async with app:
            await app.jobs(cursor=text)

    with suppress(ConfigError):
        asyncio.run(ask())


FROM_CHILD = msgspec.msgpack.Decoder(FromChild)
TO_CHILD = msgspec.msgpack.Decoder(ToChild)
REPORTS = [
    packed(report)[4:]
    for report in (
        Begun(),
        StoreNote(1, Note(id=ID, fence=1, progress=0.5)),
        Ended(how="returned", result=b"1"),
    )
]
WORDS = [
    words.encode_message(message)
    for message in (
        words.RecordRenewed("rep", [ID], 1, False),
        words.BeatFailed(),
        words.Stop(now=True),
        words.Joined("rep"),
        words.IsolationLeft("rep"),
        words.HandOver("rep", [ID]),
    )
]
# Words of our own processes: who says something else is not listened to any more.
NOTES = [b'!{"sent":{}}', b'!{"problem":"x","sent":[1]}']
UNTRUE = (ValueError, RecursionError)
HEALTH = b'{"ok":true,"workers":[{"pid":1,"jobs":[]}]}\n'


class Case(NamedTuple):
    decode: Callable[[Any], object]
    examples: list[bytes]
    errors: tuple[type[Exception], ...] = ()
    text: bool = False


def result_of(jobs: Jobs) -> Callable[[bytes], object]:
    return lambda data: jobs.decode_result(record(result=data))


CASES = {
    "arguments": Case(SIGNATURE.decode_arguments, [ARGUMENTS, b"{}"], (ArgumentsError,)),
    "results": Case(result_of(JOBS), [RESULT, *NOTES], (ResultUnavailable,)),
    "plain results": Case(result_of(STRANGER), [RESULT, PLAIN], (ResultUnavailable,)),
    "checkpoints": Case(checkpoint, [PLAIN, RESULT], (StoreError,)),
    "histories": Case(read_history, [HISTORY]),
    "documents": Case(documents, [REPORT, HISTORY, PLAIN]),
    "meta": Case(decode_meta, [b'{"host":"a","pid":"7"}']),
    "records of Redis": Case(redis_record, [STORED], (ValueError, RecursionError)),
    "replies of Redis": Case(wire, RESP),
    "orders": Case(words.decode_order, WORDS, UNTRUE),
    "reports": Case(words.decode_report, WORDS, UNTRUE),
    "words of children": Case(FROM_CHILD.decode, REPORTS, UNTRUE),
    "words to children": Case(TO_CHILD.decode, REPORTS, UNTRUE),
    "health": Case(decode_health, [HEALTH], (OSError,)),
    "notifications": Case(
        lambda text: (kind_in(text, "n"), list(topics_in(text, "n"))),
        [b'{"n":"n","t":[["queue","q"]]}', b"n queue q\nr", b"n\x1fqueue\x1fq"],
        text=True,
    ),
    "URLs": Case(
        url, [b"u:p@h:1/0?db=1", b"h,i/d?sslmode=x", b"/tmp/x.db", b"[::1]:1/0"], text=True
    ),
    "options": Case(options, [b"30", b"1h30m", b"250ms", b"512MB", b"a,b", ID.encode()], text=True),
    "settings": Case(settings, [b"30", b"7d", b"256", b"1.5GiB", b"a.b,c"], text=True),
    "names": Case(texts, [b"name", b"a:b", "é\u202e".encode()], text=True),
    "times": Case(times, [b"30", b"1h30m", b"250ms", b"1.5GiB", b"2 d"], text=True),
    "cursors": Case(cursor, [ID.encode()], text=True),
}


def feed(case: Case, data: bytes) -> float:
    document: Any = data.decode("utf-8", "surrogateescape") if case.text else data
    began = time.process_time()
    with suppress(*case.errors):
        case.decode(document)
    return time.process_time() - began


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_a_decoder_survives_any_input(name: str):
    case = CASES[name]
    until = time.monotonic() + SIZE.fuzz
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for count, data in enumerate(Mutator(case.examples, seed=int(SIZE.fuzz * 100))):
        try:
            took = feed(case, data)
        except BaseException as error:
            error.add_note(f"{name} were fed with {data!r}"[:5000])
            raise
        assert took < SLOWEST, f"{name}: {took:.1f} s for {data!r}"[:5000]
        if time.monotonic() > until and count > 20:
            break
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MEMORY


# What was found this way, and must not come back.
PAST_FAILURES = [
    ("health", b'{"a":"\xff"}'),
    ("health", b"[" * 100_000),
    ("plain results", b'"\xff"'),
    ("plain results", b"[" * 100_000),
    ("checkpoints", b'"\xff"'),
    ("histories", b'{"attempt":1'),
    ("histories", b"[" * 100_000),
    ("documents", b'"\xff"'),
    ("documents", b"\xff"),
    ("meta", b'{"host":7}'),
    ("settings", b"9" * 5000),
    ("times", b"9" * 5000),
    ("URLs", b"u:p@h:1/0?db=1\xd9"),
    ("URLs", b"/" + b"x" * 5000),
]


@pytest.mark.parametrize(
    ("name", "data"),
    PAST_FAILURES,
    ids=[f"{name}-{at}" for at, (name, _) in enumerate(PAST_FAILURES)],
)
def test_a_decoder_survives_inputs_that_broke_it_before(name: str, data: bytes):
    feed(CASES[name], data)
