"""Random requests: no undocumented error and no traceback."""

import json
import random
import time
from typing import Any

from tests.http.conftest import Replica
from tests.http.service import Face
from tests.http.wire import client_of, send
from tests.rig.sizes import SIZE

SECONDS = 1.5 if SIZE.name == "short" else 60.0
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "x"]
WORDS = [
    b"reports", b"jobs", b"years", b"slow", b"failing", b"2024", b"result", b"events", b"..", b"",
    b"%2e%2e", b"%00", b"%0a", b"%ff", b"%2f", b"x" * 300, b"{job_id}", b"-1", b"9" * 30,
]  # fmt: skip
NAMES = [
    b"prefer", b"idempotency-key", b"content-type", b"accept", b"if-none-match", b"last-event-id",
    b"content-length", b"accept-language", b"authorization", b"cookie", b"x-user", b"range",
]  # fmt: skip
VALUES = [
    b"wait=0", b"wait=00000000000000000", b"wait=-1", b"application/json", b"text/csv", b"*/*",
    b'"1"', b"*", b"", b"0", b"1", b"999999999999999999999", b"\xff\xfe", b"k", b'"k"', b", ,",
    b"application/x+json; charset=utf-16", b"x" * 9000, b"text/html;q=", b"ben", b"\t",
]  # fmt: skip
BODIES = [
    b"", b"{}", b'{"month":3}', b'{"month":3,"month":"x"}', b"[1,2]", b"null", b"[", b'"', b"\xff",
    b"-0", b"1e5", b"[" * 500, b'{"a":' * 64 + b"1" + b"}" * 64, b"1" * 400, b'{"month":1e400}',
    b'{"month":3,"secret":null,"note":"\\u0000\\u2028"}', b" " * 70_000, b"x" * 300_000,
]  # fmt: skip


def some_target(dice: random.Random, ids: list[bytes]) -> bytes:
    if dice.random() < 0.6:
        form = dice.choice(
            [
                b"/reports",
                b"/reports/slow",
                b"/reports/years/7",
                b"/reports/jobs",
                b"/reports/brief",
            ]
        )
        if dice.random() < 0.6:
            form = b"/reports/jobs/" + dice.choice(ids)
            form += dice.choice([b"", b"/result", b"/events", b"/", b"/x"])
    else:
        form = b"".join(b"/" + dice.choice([*WORDS, *ids]) for _ in range(dice.randint(0, 5)))
    query = dice.choice(
        [b"", b"limit=3", b"limit=x", b"cursor=" + dice.choice(ids), b"q=%ff&q=1", b"loud=1&loud=x",
         b"steps=1", b"status=failed", b"&&==%", b"limit=" + b"9" * 5000]
    )  # fmt: skip
    return (form or b"/") + (b"?" + query if query else b"")


def mangled(dice: random.Random, text: bytes, most: int = 256) -> bytes:
    """Return a text, sometimes with a small change."""
    if not text or dice.random() < 0.7:
        return text
    place = dice.randrange(len(text))
    return text[:place] + bytes([dice.randrange(1, most)]) + text[place + 1 :]


async def test_random_requests_get_documented_answers(replica: Replica, face: Face, caplog):
    service = await replica()
    service.stage.go.set()
    application = service.face(face)
    async with client_of(application, timeout=20) as ann:
        paths = ("slow", "failing", "refusing", "brief")
        wait = {"Prefer": "wait=9"}
        made = [await ann.post(f"/reports/{path}", headers=wait) for path in paths]
    ids = [reply.headers["location"].rpartition("/")[2].encode() for reply in made]
    dice = random.Random(f"{face} 8")
    until, statuses = time.monotonic() + SECONDS, {}
    while time.monotonic() < until:
        request: dict[str, Any] = {
            "method": dice.choice(METHODS),
            # Non-ASCII characters are encoded: servers, and Starlette itself, refuse raw ones.
            "target": mangled(dice, some_target(dice, ids), most=127),
            "headers": [
                (b"x-user", b"ann"),
                *(
                    (dice.choice(NAMES), mangled(dice, dice.choice(VALUES)))
                    for _ in range(dice.randint(0, 4))
                ),
            ],
            "chunks": [mangled(dice, dice.choice(BODIES)) for _ in range(dice.choice([1, 1, 2]))],
        }
        reply = await send(application, **request)
        statuses[reply.status] = statuses.get(reply.status, 0) + 1
        assert_documented(reply, request)
    assert len(statuses) > 5, statuses
    assert sum(statuses.values()) > 100
    # Errors of the framework or of asyncio. Exceptions of handlers are logged on purpose.
    assert [line for line in caplog.records if line.exc_info and line.name != "tenure"] == []


def assert_documented(reply: Any, request: dict[str, Any]) -> None:
    headers = dict(reply.headers)
    kind = headers.get(b"content-type", b"").split(b";")[0]
    if reply.status >= 500:
        # Only the failure of a job, shown by its result.
        assert reply.status == 500, (reply, request)
        assert json.loads(reply.body)["type"] == "urn:tenure:problem:job-failed", request
    if kind == b"application/problem+json" and request["method"] != "HEAD":
        body = json.loads(reply.body)
        assert body["status"] == reply.status
        assert {"type", "title"} <= set(body)
    elif reply.status >= 400:
        # From the framework: no such route, method, or user.
        assert reply.status in (401, 404, 405) or request["method"] == "HEAD", (reply, request)
    assert b"Traceback" not in reply.body
    assert b'File "' not in reply.body
    assert b"hidden-5c3e" not in reply.body
    for name, value in reply.headers:
        assert b"\n" not in value, (name, request)
        assert b"\r" not in value, (name, request)
