"""The promises of the clients, each tested on both."""

from uuid import uuid4

import pytest

from tenure import (
    JobCancelled,
    JobFailed,
    JobNotFound,
)
from tests.http.client.either import got, jobs_of
from tests.http.report_server import ReportRequest


async def test_a_job_is_submitted_and_its_result_comes_back(client, server, user):
    job = await got(client.submit("/reports", {"steps": 1, "size": 3}))
    assert job.resource.state in ("waiting", "running", "succeeded")
    assert job.id == job.resource.id == jobs_of(server, user)[0]["id"]
    assert await got(job.result(timeout=20)) == {"pages": "xxx"}
    assert job.is_finished
    assert job.resource.finished >= job.resource.created
    assert job.id in repr(job)


async def test_results_are_what_the_handler_returned(client):
    submit, larger_than_a_resource_shows = client.submit, 100_000
    job = await got(submit("/reports", ReportRequest(size=larger_than_a_resource_shows)))
    assert len((await got(job.result(timeout=20)))["pages"]) == larger_than_a_resource_shows
    assert await got((await got(submit("/reports", {}))).result(timeout=20)) is None
    csv = await got(submit("/reports/2024", method="PUT", params={"header": True}))
    assert await got(csv.result(timeout=20)) == b"year\n2024\n"


async def test_a_failure_carries_the_problem(client):
    job = await got(client.submit("/reports", {"problem": "The year has 12."}))
    with pytest.raises(JobFailed, match=r"No such month\. The year has 12\.") as failed:
        await got(job.result(timeout=20))
    assert failed.value.reason == "urn:x:month"
    assert failed.value.problem == {
        "type": "urn:x:month",
        "title": "No such month",
        "status": 422,
        "detail": "The year has 12.",
    }

    job = await got(client.submit("/reports", {"error": "a secret"}))
    await got(job.wait(timeout=20))
    with pytest.raises(JobFailed, match="The job failed") as failed:
        await got(job.result())
    assert failed.value.reason == "job-failed"


async def test_a_job_is_cancelled(client, gate):
    job = await got(client.submit("/reports", {"gate": gate}))
    assert await got(job.cancel()) is job
    await got(job.wait(timeout=20))
    with pytest.raises(JobCancelled, match="by its owner") as cancelled:
        await got(job.result())
    assert cancelled.value.problem["status"] == 410
    assert await got(job.cancel()) is job  # a second cancel works too


async def test_a_job_is_found_again_by_its_url(client, kind, server, user):
    job = await got(client.submit("/reports", {"size": 1}, wait=20))
    assert job.is_finished
    again = await got(client.job(job.url))
    assert (again.id, await got(again.result())) == (job.id, {"pages": "x"})
    with pytest.raises(JobNotFound, match="there is no job"):
        await got(client.job("/reports/jobs/nothing"))


async def test_headers_are_sent_with_every_request_about_a_job(client, network, gate):
    other = {"x-USER": uuid4().hex, "Prefer": "respond-async", "Content-Type": "application/json"}
    job = await got(client.submit("/reports", {"size": 1}, headers=other))
    assert await got(job.result(timeout=20)) == {"pages": "x"}
    assert set(network.header("x-user")) == {other["x-USER"]}
    assert network.header("content-type")[1:] == [None] * (len(network.sent) - 1)


async def test_a_result_in_the_answer_to_a_submission_is_used(client):
    job = await got(client.submit("/reports", {"size": 1}, headers={"Prefer": "wait=20"}))
    assert job.is_finished
    assert await got(job.result()) == {"pages": "x"}


async def test_each_submission_has_a_request_id_of_its_own_for_all_its_requests(client, network):
    job = await got(client.submit("/reports", {"size": 1}))
    await got(job.result(timeout=20))
    [sent] = set(network.header("x-request-id"))
    assert sent == job.request_id
    assert len(sent) == 36
    other = await got(client.submit("/reports", {"size": 1}))
    assert other.request_id != job.request_id


async def test_the_request_id_of_the_caller_or_of_the_client_is_kept(client, kind, server, user):
    job = await got(client.submit("/reports", {"size": 1}, headers={"X-Request-ID": "r-81"}))
    assert job.request_id == "r-81"
    names = {"X-User": user, "X-Request-ID": "r-82"}
    named = kind(server.url, headers=names)
    assert (await got(named.submit("/reports", {"size": 1}))).request_id == "r-82"
    await got(named.close())


async def test_the_context_of_the_caller_is_sent_with_every_request(kind, server, network, user):
    calls = []

    def context():
        calls.append(1)
        return {"Traceparent": f"t-{len(calls)}", "x-tenant": "context"}

    client = kind(server.url, transport=network, headers={"X-User": user}, context=context)
    job = await got(client.submit("/reports", {"size": 1}, headers={"X-Tenant": "call"}))
    await got(job.result(timeout=20))
    assert set(network.header("traceparent")) == {"t-1"}
    assert set(network.header("x-tenant")) == {"call"}
    await got(client.job(job.url))
    assert network.header("traceparent")[-1] == "t-2"
    await got(client.close())
