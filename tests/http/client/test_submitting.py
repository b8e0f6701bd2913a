"""Submitting, by either client: one job, however often the request is sent, and its handle."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from uuid import UUID

import httpx2
import pytest

from tenure import ConfigError, JobStateError
from tenure.http import RequestRefused, ServerUnreachable, UnusableAnswer
from tests.http.client.both_clients import AT_ONCE, Outage, got, jobs_of
from tests.http.network import (
    Answered,
    HeaderSet,
    Mishap,
    Network,
    ReplyLost,
    RequestHeaderLost,
    Unreachable,
)


async def test_a_reply_that_is_lost_after_the_effect_leaves_one_job(client, network, server, user):
    network.expect(ReplyLost(), Unreachable(), ReplyLost())
    job = await got(client.submit("/reports", {"size": 1}))
    assert [job["id"] for job in jobs_of(server, user)] == [job.id]
    keys = network.header("idempotency-key")
    assert len(keys) == 4
    assert len(set(keys)) == 1
    assert str(UUID(keys[0])) == keys[0]

    await got(client.submit("/reports", {"size": 1}))
    assert len(jobs_of(server, user)) == 2


async def test_the_same_idempotency_key_returns_the_same_job(client, network):
    first = await got(client.submit("/reports", {"size": 1}, key="mine"))
    second = await got(client.submit("/reports", {"size": 1}, headers={"idempotency-key": "mine"}))
    assert second.id == first.id
    with pytest.raises(RequestRefused, match="belongs to another request") as refused:
        await got(client.submit("/reports", {"size": 2}, key="mine"))
    assert refused.value.type == "urn:tenure:problem:idempotency-key-reused"
    assert len(network.sent) == 3


async def test_a_busy_server_is_asked_again_after_its_retry_after(client, network, clock):
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    network.expect(
        Answered(503, {"Retry-After": "7"}),
        Answered(429, {"Retry-After": soon}),
        Answered(502),
        Answered(500),
    )
    await got(client.submit("/reports", {}))
    busy, date, first, second = clock.pauses
    assert 7 <= busy < 7.5
    assert 10 < date < 22
    assert 0.25 <= first <= 1.25
    assert 0.25 <= second <= 2.25


@pytest.mark.parametrize("retry_after", AT_ONCE)
async def test_a_retry_after_of_zero_still_has_a_pause(client, network, clock, retry_after):
    network.expect(*[Answered(503, {"Retry-After": retry_after})] * 4)
    await got(client.submit("/reports", {}))
    assert len(clock.pauses) == 4
    assert min(clock.pauses) >= 0.25


async def test_a_date_in_retry_after_counts_by_the_clock_of_the_server(client, network, clock):
    hour = datetime(2020, 1, 1, 12, tzinfo=UTC)
    headers = {
        "Date": format_datetime(hour, usegmt=True),
        "Retry-After": format_datetime(hour + timedelta(seconds=9), usegmt=True),
    }
    network.expect(Answered(503, headers), Answered(503, {"Retry-After": "soon"}))
    await got(client.submit("/reports", {}))
    assert 9 <= clock.pauses[0] < 9.5
    assert clock.pauses[1] <= 0.75


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 413, 501])
async def test_permanent_errors_are_not_retried(client, network, status):
    network.expect(Answered(status, {"Location": "/elsewhere"}, b"<html>"))
    with pytest.raises(RequestRefused, match=str(status)) as refused:
        await got(client.submit("/reports", {}))
    assert refused.value.status == status
    assert "/elsewhere" in refused.value.detail
    assert len(network.sent) == 1


async def test_an_invalid_request_names_the_invalid_fields(client, network, server, user):
    with pytest.raises(RequestRefused, match="does not fit") as refused:
        await got(client.submit("/reports", {"steps": "many"}))
    assert refused.value.status == 422
    assert refused.value.errors[0]["pointer"] == "/steps"
    assert refused.value.headers["Content-Type"] == "application/problem+json"
    assert len(network.sent) == 1
    assert jobs_of(server, user) == []


async def test_retries_end_when_patience_runs_out(kind, server, clock):
    away = Network(*[Unreachable()] * 1000)
    client = kind(server.url, transport=away, clock=clock, patience="30s")
    with pytest.raises(ServerUnreachable, match=r"POST /reports has no answer: planned") as gone:
        await got(client.submit("/reports", {}))
    assert isinstance(gone.value, ConnectionError)
    assert isinstance(gone.value.__cause__, httpx2.ConnectError)
    assert 15 < sum(clock.pauses) <= 30
    assert len(set(clock.pauses)) == len(clock.pauses)  # clients do not retry in step
    await got(client.close())


@pytest.mark.parametrize(("status", "error"), [(None, ServerUnreachable), (503, RequestRefused)])
async def test_the_error_after_patience_has_run_out_names_the_key(
    client, network, server, user, status, error
):
    outage = Outage(status)
    network.expect(ReplyLost(), *[outage] * 1000)
    with pytest.raises(error) as gone:
        await got(client.submit("/reports", {"size": 1}))
    key = gone.value.key
    assert network.header("idempotency-key") == [key] * len(network.sent)
    assert f"key={key!r}" in str(gone.value)
    assert set(network.header("x-request-id")) == {gone.value.request_id}
    assert f"request_id={gone.value.request_id!r}" in str(gone.value)

    outage.is_over = True
    job = await got(client.submit("/reports", {"size": 1}, key=key))
    assert [job["id"] for job in jobs_of(server, user)] == [job.id]


async def test_a_retry_after_beyond_patience_fails_at_once(client, network, clock):
    network.expect(Answered(429, {"Retry-After": "3600"}, b'{"title": "Too many", "status": 429}'))
    with pytest.raises(RequestRefused, match="Too many") as refused:
        await got(client.submit("/reports", {}))
    assert refused.value.headers["retry-after"] == "3600"
    assert clock.pauses == []


async def test_a_submission_fails_at_its_deadline(client, network, clock, server, user):
    network.expect(ReplyLost(), Answered(503, {"Retry-After": "30"}))
    with pytest.raises(TimeoutError, match="not within 10 s") as late:
        await got(client.submit("/reports", {}, key="mine", timeout=10))
    assert "key='mine'" in str(late.value)
    assert sum(clock.pauses) < 10
    assert len(jobs_of(server, user)) == 1


@pytest.mark.parametrize("timeout", [10, None])
async def test_a_stored_job_is_returned_whatever_follows(client, network, clock, timeout):
    outage, at_once = Outage(), {"Prefer": "wait=20"}
    network.expect(Mishap(), *[outage] * 1000)
    job = await got(client.submit("/reports", {"size": 1}, headers=at_once, timeout=timeout))
    assert sum(clock.pauses) <= (timeout or 60)
    assert job.id in repr(job)
    assert not job.is_finished  # as far as the client knows
    with pytest.raises(JobStateError, match="refresh"):
        _ = job.resource
    outage.is_over = True
    assert await got(job.result(timeout=20)) == {"pages": "x"}
    assert job.is_finished


async def test_a_wait_ends_with_the_deadline_of_the_submission(client, network, clock, gate):
    network.expect(Mishap(), *[RequestHeaderLost("prefer")] * 1000)
    job = await got(client.submit("/reports", {"gate": gate}, wait=600, timeout=30))
    assert not job.is_finished
    assert sum(clock.pauses) <= 30
    await got(job.cancel())


@pytest.mark.parametrize("wrong", [{"wait": "soon"}, {"timeout": "soon"}])
async def test_an_invalid_duration_is_refused_before_anything_is_sent(client, network, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        await got(client.submit("/reports", {}, **wrong))
    assert network.sent == []


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.1:1/reports/jobs/1",
        "https://elsewhere.example/reports/jobs/1",
        "//elsewhere.example/reports/jobs/1",
        "http://127.0.0.1@elsewhere.example/jobs/1",
        "http://127.0.0.1:x/",
        "http://[127.0.0.1/reports/jobs/1",
        "",
    ],
)
async def test_an_address_on_another_host_is_not_followed(client, network, place):
    network.expect(HeaderSet("Location", place))
    with pytest.raises(UnusableAnswer, match="another host|no URL" if place else "no Location"):
        await got(client.submit("/reports", {}))
    assert len(network.sent) == 1


async def test_answers_of_other_servers_are_not_taken_for_jobs(client, network):
    network.expect(Answered(202, {"Location": "/reports/jobs/1"}, b"<html>"))
    with pytest.raises(UnusableAnswer, match="POST /reports"):
        await got(client.submit("/reports", {}))
