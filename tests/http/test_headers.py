"""Parsing of headers, owners and bodies of requests: one table for each."""

from uuid import UUID

import pytest

from tenure.errors import StoreFull
from tenure.http import Headers, Problem
from tenure.http.request import (
    accepts,
    idempotency_key,
    known_entity_tags,
    owner_name,
    wait_preference,
)
from tenure.http.server.store_trouble import RateLimitedWarning
from tenure.testing import ManualClock
from tests.http.conftest import Replica
from tests.http.service import Face
from tests.http.wire import send


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("wait=5", 5),
        ("Wait = 5", 5),
        ('wait="5"', 5),
        ("wait=5; strict=9", 5),
        ("respond-async, wait=5", 5),
        ("wait=5, respond-async", 5),
        ("wait=5, wait=9", 5),
        ("wait=x, wait=9", 9),
        ("delay=5", 0),
        ("wait=123456789", 123_456_789),
        ("wait=1234567890", 0),
        ("wait=5.5", 0),
    ],
)
def test_the_wait_of_a_prefer_header_is_parsed(prefer, seconds):
    headers = Headers({} if prefer is None else {"Prefer": prefer})
    assert wait_preference(headers) == seconds


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("k", "k"),
        ("kk", "kk"),
        ('"k"', "k"),
        ('"k k"', "k k"),
        ('"', '"'),
        ('"k', '"k'),
        ('k"', 'k"'),
        ('"k"k', '"k"k'),
        ("x" * 255, "x" * 255),
        (f'"{"x" * 255}"', "x" * 255),
    ],
)
def test_a_key_is_read_with_and_without_quotes(text, key):
    assert idempotency_key(Headers({"Idempotency-Key": text})) == key


@pytest.mark.parametrize("text", ["", '""', " k", '" k"', "x" * 256, "k\n", "\u00e4"])
def test_a_malformed_idempotency_key_is_refused(text):
    with pytest.raises(Problem, match="idempotency-key-malformed"):
        idempotency_key(Headers({"Idempotency-Key": text}))


def test_without_the_header_there_is_no_idempotency_key():
    assert idempotency_key(Headers({})) is None


@pytest.mark.parametrize(
    ("if_none_match", "tags"),
    [
        (None, set()),
        (" , ", set()),
        ('"1"', {'"1"'}),
        ('W/"1", "2",', {'"1"', '"2"'}),
        ("*", {"*"}),
    ],
)
def test_the_entity_tags_of_a_client_are_parsed(if_none_match, tags):
    headers = Headers({} if if_none_match is None else {"If-None-Match": if_none_match})
    assert known_entity_tags(headers) == tags


@pytest.mark.parametrize(
    ("accept", "is_taken"),
    [
        (None, True),
        ("*/*", True),
        ("text/csv", True),
        ("TEXT/CSV;q=0.5", True),
        ("text/*", True),
        ("application/json, text/csv", True),
        ("text/csv, application/json", True),
        ("application/json", False),
        ("text/plain", False),
        ("application/*", False),
    ],
)
def test_the_accepted_media_types_of_a_client_are_parsed(accept, is_taken):
    headers = Headers({} if accept is None else {"Accept": accept})
    assert accepts(headers, "text/CSV; charset=utf-8; header=present") is is_taken


@pytest.mark.parametrize(
    ("owner", "name"),
    [("ann", "ann"), (7, "7"), (0, "0"), (UUID(int=1), "00000000-0000-0000-0000-000000000001")],
)
def test_owners_are_named_by_text_or_number(owner, name):
    assert owner_name(owner) == name


@pytest.mark.parametrize("owner", [None, "", " \t", "ann\ud800"])
def test_a_missing_owner_is_a_problem(owner):
    with pytest.raises(Problem, match="unknown-owner"):
        owner_name(owner)


def test_headers_are_a_mapping_that_shows_no_values():
    headers = Headers({"X-One": "1", "x-two": "2"})
    assert (len(headers), list(headers), headers["X-TWO"]) == (2, ["x-one", "x-two"], "2")
    assert repr(headers) == "Headers(x-one, x-two)"


TEN = b"[1,2,3,45]"


@pytest.mark.parametrize(
    ("chunks", "announced", "status"),
    [
        ([TEN], b"10", 202),
        ([TEN], None, 202),
        ([TEN[:4], TEN[4:]], None, 202),
        ([TEN[:4], TEN[4:7], TEN[7:], b""], b"10", 202),
        ([TEN, b" "], None, 413),
        ([TEN + b" "], None, 413),
        ([TEN], b"11", 413),
        ([TEN], b"9" * 40, 413),
        ([TEN], "\u0661\u0661".encode(), 202),
        ([TEN], b"-11", 202),
    ],
)
async def test_a_body_may_be_as_large_as_the_limit(
    replica: Replica, face: Face, chunks: list[bytes], announced: bytes | None, status: int
):
    service = await replica(works=False)

    @service.router.post("/small", body_limit=10)
    async def small(body: list[int]) -> None: ...

    headers = [(b"x-user", b"ann"), (b"content-type", b"application/json")]
    if announced is not None:
        headers.append((b"content-length", announced))
    application = service.face(face)
    reply = await send(application, "POST", b"/reports/small", headers=headers, chunks=chunks)
    assert reply.status == status
    assert len(await service.app.jobs()) == (status == 202)


async def test_the_reason_of_a_store_failure_is_logged_every_30_seconds(caplog):
    clock = ManualClock()
    complaints = RateLimitedWarning("requests wait", clock)

    def said_after(seconds: float) -> list[str]:
        clock.shift(seconds)
        caplog.clear()
        complaints.add(StoreFull("full"))
        return [record.getMessage() for record in caplog.records]

    assert said_after(0) == ["requests wait: full"]
    assert said_after(10) == []
    assert said_after(19.5) == []
    assert said_after(0.5) == ["requests wait: full (2 more since the last time)"]
    assert said_after(30) == ["requests wait: full"]
    assert said_after(29) == []
    assert said_after(1) == ["requests wait: full (1 more since the last time)"]
    assert {record.name for record in caplog.records} == {"tenure"}
