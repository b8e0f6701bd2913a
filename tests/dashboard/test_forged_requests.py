"""Requests that no page of the dashboard sends: forged headers, bodies without an end."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tenure import Tenure
from tenure.dashboard import Dashboard
from tests.http.wire import send

PAUSE = b"/api/queues/mail/pause"
JSON = (b"content-type", b"application/json")
OWN = (b"sec-fetch-site", b"same-origin")
FOREIGN = (b"sec-fetch-site", b"cross-site")


@pytest.fixture
def dashboard(still: Tenure) -> Dashboard:
    return Dashboard(still, auth=lambda _scope: "ann")


async def session_of(dashboard: Dashboard) -> list[tuple[bytes, bytes]]:
    """Return the headers with the cookie and the token of the viewer."""
    reply = await send(dashboard, "GET", b"/api/session", headers=[OWN])
    [cookie] = [value.partition(b";")[0] for name, value in reply.headers if name == b"set-cookie"]
    token = json.loads(reply.body)["token"].encode()
    return [(b"cookie", cookie), (b"x-tenure-token", token)]


async def test_an_action_without_a_token_is_refused(still: Tenure, dashboard: Dashboard) -> None:
    reply = await send(dashboard, "POST", PAUSE, headers=[OWN, JSON], chunks=[b"{}"])
    assert reply.status == 403
    assert json.loads(reply.body)["is_stale_token"]
    assert await still.queues() == []


@pytest.mark.parametrize(
    "twice",
    [
        [FOREIGN, OWN],
        [OWN, FOREIGN],
        [(b"origin", b"http://evil.test"), (b"origin", b"http://x")],
        [(b"origin", b"http://x"), (b"origin", b"http://evil.test")],
    ],
)
async def test_of_a_header_that_is_sent_twice_neither_counts(
    still: Tenure, dashboard: Dashboard, twice: Sequence[tuple[bytes, bytes]]
) -> None:
    headers = [JSON, *await session_of(dashboard), *twice]
    assert (await send(dashboard, "POST", PAUSE, headers=headers, chunks=[b"{}"])).status == 403
    assert (await send(dashboard, "GET", b"/api/jobs", headers=twice)).status == 403
    assert await still.queues() == []


async def test_old_browsers_name_the_origin_of_a_read(dashboard: Dashboard) -> None:
    for origin, status in ((b"http://x", 200), (b"http://evil.test", 403), (b"null", 403)):
        reply = await send(dashboard, "GET", b"/api/jobs", headers=[(b"origin", origin)])
        assert reply.status == status


async def test_a_body_without_an_end_is_not_kept(dashboard: Dashboard) -> None:
    headers = [JSON, OWN, *await session_of(dashboard)]
    chunks = [b'{"reason": "', *[b"x" * 1024] * 100]
    reply = await send(dashboard, "POST", PAUSE, headers=headers, chunks=chunks)
    assert reply.status == 413
    assert reply.chunks_read < 20


async def test_a_body_that_is_cut_off_does_nothing(still: Tenure, dashboard: Dashboard) -> None:
    """What has arrived may be a whole document by chance."""
    session = await session_of(dashboard)
    messages = iter(
        [
            {"type": "http.request", "body": b'{"seconds": null}', "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    statuses = []

    async def receive() -> Any:
        return next(messages)

    async def respond(message: Any) -> None:
        statuses.append(message.get("status"))

    scope = {"type": "http", "method": "POST", "path": PAUSE.decode(), "raw_path": PAUSE}
    headers = [(b"host", b"x"), JSON, OWN, *session]
    await dashboard({**scope, "query_string": b"", "headers": headers}, receive, respond)
    assert statuses[0] == 400
    assert await still.queues() == []
