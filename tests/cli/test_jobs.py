"""`tenure jobs`, on every store."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tenure import JobNotFound
from tenure.app import engine_of
from tenure.runtime.attempts.running_job import current
from tests.cli.conftest import Place, Run
from tests.cli.shop import NOWHERE, Shop, shop_at, work_without_tasks
from tests.rig.wait import wait_until


@pytest.fixture
def shop(place: Place) -> Iterator[Shop]:
    with shop_at(place) as shop:
        yield shop


def test_ls_lists_the_newest_first(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    late = shop.sync.enqueue(shop.send.using(delay="2h").request(7))
    result = cli(*place.options, "jobs", "ls")
    assert result.code == 0
    header, second, first = result.out.splitlines()
    assert header.split() == ["ID", "TASK", "QUEUE", "STATE", "AGE", "DETAILS"]
    assert first.split()[:4] == [job.id, "resize", "default", "waiting"]
    assert second.split()[:4] == [late.id, "send", "mail", "waiting"]
    assert re.search(r"\d m?s +due in (2 h|1 h 59 min)$", second)
    assert f"(from --url), namespace {place.namespace}" in result.err


def test_ls_says_what_is_most_worth_knowing(cli: Run, place: Place, shop: Shop):
    def about(job) -> str:
        lines = cli(*place.options, "jobs", "ls").out.splitlines()
        [line] = [line for line in lines if line.startswith(job.id)]
        return re.split(r" {2,}", line)[3:]

    good = shop.sync.enqueue(shop.resize.request("cat.png"))
    bad = shop.sync.enqueue(shop.resize.request("dog.png"))
    unwanted = shop.sync.enqueue(shop.resize.request("cow.png"))
    running = shop.sync.enqueue(shop.resize.request("hen.png"))
    unwanted.cancel("sent twice")
    claimed = {record.id: record for record in shop.claim()}
    shop.settle(claimed[good.id], "succeeded", result=b"800")
    shop.fail(claimed[bad.id], "no such file")

    state, _, words = about(good)
    assert (state, re.fullmatch(r"took \d+ ms|took [\d.]+ m?s", words) is not None) == (
        "succeeded",
        True,
    )
    assert about(bad)[0] == "failed"
    assert about(bad)[2] == "ValueError: no such file"
    assert about(unwanted)[2] == "sent twice"
    assert re.fullmatch(r"for [\d.]+ m?s", about(running)[2])
    running.cancel()
    assert about(running)[0] == "cancelling"


def test_ls_says_that_no_worker_knows_the_task(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    work_without_tasks(place, job)
    [line] = cli(*place.options, "jobs", "ls").out.splitlines()[1:]
    assert re.search(r" waiting .*\bno worker knows the task$", line)
    job.cancel()
    assert "no worker knows" not in cli(*place.options, "jobs", "ls").out


@pytest.mark.parametrize(
    ("options", "matching"),
    [
        ((), "abcd"),
        (("--state", "running"), "bc"),
        (("--task", "send"), "cd"),
        (("--queue", "mail"), "cd"),
        (("--tag", "x"), "bd"),
        (("--tag", "x", "--task", "send"), "d"),
        (("--limit", "2"), "cd"),
        (("--limit", "1", "--all"), "abcd"),
    ],
)
def test_ls_finds_what_fits(cli: Run, place: Place, shop: Shop, options, matching: str):
    later = {"delay": "1h"}
    jobs = shop.sync.enqueue_many(
        [
            shop.resize.using(**later).request("a"),
            shop.resize.using(tags=["x"]).request("b"),
            shop.send.request(1),
            shop.send.using(tags=["x"], **later).request(2),
        ]
    )
    jobs.sort(key=lambda job: job.id)
    letters = {job.id: letter for job, letter in zip(jobs, letters_of(jobs), strict=True)}
    shop.claim()
    document = cli(*place.options, "jobs", "ls", *options, "--json").json
    listed = [letters[job["id"]] for job in document["jobs"]]
    if "--limit" in options and "--all" not in options:
        assert len(listed) == 2
        assert document["cursor"] is not None
    else:
        assert sorted(listed) == list(matching)
        assert document["cursor"] is None


def letters_of(jobs) -> Iterator[str]:
    names = {b'"a"': "a", b'"b"': "b", b"1": "c", b"2": "d"}
    for job in jobs:
        [letter] = [name for word, name in names.items() if b":" + word in job.record.payload]
        yield letter


def test_ls_goes_on_where_it_ended(cli: Run, place: Place, shop: Shop):
    jobs = shop.sync.enqueue_many([shop.resize.request(str(number)) for number in range(5)])
    ids, cursor = [], ()
    for _ in range(3):
        document = cli(*place.options, "jobs", "ls", "--limit", "2", *cursor, "--json").json
        ids += [job["id"] for job in document["jobs"]]
        cursor = ("--cursor", document["cursor"] or "")
    assert document["cursor"] is None
    assert ids == sorted((job.id for job in jobs), reverse=True)
    result = cli(*place.options, "jobs", "ls", "--limit", "2")
    assert re.search(r"use --cursor \S+, or --all", result.err)


def test_ls_of_many_takes_several_pages(cli: Run, place: Place, shop: Shop):
    shop.sync.enqueue_many([shop.resize.request("x") for _ in range(250)])
    assert len(cli(*place.options, "jobs", "ls", "--all", "--json").json["jobs"]) == 250
    assert len(cli(*place.options, "jobs", "ls", "--limit", "230", "--json").json["jobs"]) == 230


def test_ls_of_nothing_says_so(cli: Run, place: Place):
    assert cli(*place.options, "jobs", "ls").out == "There are no jobs.\n"
    assert cli(*place.options, "jobs", "ls", "--task", "x").out == "No job matches.\n"
    assert cli(*place.options, "jobs", "ls", "--json").json == {
        "store": place.url,
        "namespace": place.namespace,
        "jobs": [],
        "cursor": None,
    }


def test_arguments_are_shown_decoded(cli: Run, place: Place, shop: Shop):
    shop.sync.enqueue(shop.resize.request("größe.png", width=3))
    [listed] = cli(*place.options, "jobs", "ls", "--json").json["jobs"]
    assert listed["arguments"] == {"image": "größe.png", "width": 3}
    shown = cli(*place.options, "jobs", "show", listed["id"]).out
    assert 'arguments   {"image": "größe.png", "width": 3}' in shown


def test_headers_are_shown_beside_the_arguments(cli: Run, place: Place, shop: Shop):
    sent = {"tenant": "größe\n\x1b[0m", "x-request-id": "r-1"}
    job = shop.sync.enqueue(shop.resize.using(headers=sent).request("cat.png"))
    [listed] = cli(*place.options, "jobs", "ls", "--json").json["jobs"]
    assert listed["headers"] == sent
    assert cli(*place.options, "jobs", "show", job.id, "--json").json["headers"] == sent
    shown = cli(*place.options, "jobs", "show", job.id).out
    line = '\nheaders     {"tenant": "größe\\n\\u001b[0m", "x-request-id": "r-1"}\n'
    assert line in shown
    plain = shop.sync.enqueue(shop.resize.request("dog.png"))
    assert "headers" not in cli(*place.options, "jobs", "show", plain.id).out


def test_show_tells_all(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.send.using(tags=["a", "b"], priority=2).request(7))
    [record] = shop.claim()
    trace = 'Traceback (most recent call last):\n  File "shop.py", line 7\nValueError: bad'
    shop.fail(record, "bad", trace)
    result = cli(*place.options, "jobs", "show", job.id)
    assert result.code == 0
    assert result.out.startswith(f"send  {job.id}  failed\n")
    for fact in (
        "queue       mail, priority 2",
        "tags        a, b",
        'arguments   {"user": 7}',
        "attempts    1 (1 failed)",
        "timeout     30 s per attempt",
        "reason      error",
        "error       ValueError: bad",
    ):
        assert f"\n{fact}\n" in result.out
    assert re.search(r"\ncreated +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, [\d.]+ m?s ago\n", result.out)
    assert re.search(r"\nkept +until \d{4}-.* UTC, ", result.out)
    line = r"\nattempt 1   \d{4}-.* UTC, [\d.]+ m?s ago, on web-1: failed after 2 ms\n"
    assert re.search(line, result.out)
    assert result.out.endswith(f"\n\n{trace}\n")


def test_show_as_a_document(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    [record] = shop.claim()
    shop.settle(record, "succeeded", result=b'{"width":800}')
    document = cli(*place.options, "jobs", "show", job.id, "--json").json
    listed = cli(*place.options, "jobs", "ls", "--json").json["jobs"][0]
    assert listed.items() <= document.items()
    assert document["result"] == {"width": 800}
    assert document["fence"] == record.fence
    assert document["created"] <= document["started"] <= document["finished"]
    [attempt] = document["history"]
    assert (attempt["outcome"], attempt["replica"]) == ("succeeded", "web-1")
    assert (document["error"], document["trace"], document["replica"]) == (None, "", None)


def test_a_result_that_cannot_be_had_is_explained(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    [record] = shop.claim()
    shop.settle(record, "succeeded", result=rb'!{"problem":"it is \u001b[2J large","sent":[1]}')
    document = cli(*place.options, "jobs", "show", job.id, "--json").json
    assert (document["result"], document["result_problem"]) == ([1], "it is \x1b[2J large")
    shown = cli(*place.options, "jobs", "show", job.id).out
    assert re.search(r"result +\[1\], not available: it is \\x1b\[2J large", shown)


@pytest.mark.parametrize("unknown", [NOWHERE, "nonsense", "'; DROP TABLE job"])
def test_what_is_not_there_is_told(cli: Run, place: Place, unknown: str):
    result = cli(*place.options, "jobs", "show", unknown)
    assert (result.code, result.out) == (2, "")
    assert f"there is no job {unknown}." in result.err
    for command in ("cancel", "requeue", "delete"):
        result = cli(*place.options, "jobs", command, unknown)
        assert (result.code, result.out) == (2, f"There is no job {unknown}\n")
        document = cli(*place.options, "jobs", command, unknown, "--json").json
        assert document["jobs"] == [{"id": unknown, "outcome": "not found"}]


def test_show_names_the_job_that_enqueued_it(cli: Run, place: Place, shop: Shop):
    parent = shop.sync.enqueue(shop.resize.request("cat.png"))
    store = engine_of(shop.sync._app).store
    home = (store.url, store.namespace)
    token = current.set(SimpleNamespace(id=parent.id, home=home, lend_slot=None))
    child = shop.sync.enqueue(shop.send.using(tags=["a"]).request(7))
    current.reset(token)
    shown = cli(*place.options, "jobs", "show", child.id)
    assert re.search(rf"^enqueued by +job {parent.id}$", shown.out, re.MULTILINE)
    assert re.search(r"^tags +a$", shown.out, re.MULTILINE)
    document = cli(*place.options, "jobs", "show", child.id, "--json").json
    assert (document["parent"], document["tags"]) == (parent.id, ["a"])
    assert cli(*place.options, "jobs", "show", parent.id, "--json").json["parent"] is None


def test_cancel_says_what_came_of_each(cli: Run, place: Place, shop: Shop):
    done, running = shop.sync.enqueue_many([shop.resize.request(name) for name in "ab"])
    claimed = {record.id: record for record in shop.claim()}
    shop.settle(claimed[done.id], "succeeded", result=b"1")
    waiting = shop.sync.enqueue(shop.resize.request("c"))
    ids = (waiting.id, running.id, done.id)
    result = cli(*place.options, "jobs", "cancel", *ids, "--reason", "sent twice")
    assert result.code == 0
    assert result.out.splitlines() == [
        f"Cancelled {waiting.id}",
        f"Asked to stop: {running.id}",
        f"Already finished: {done.id}",
    ]
    assert (waiting.refresh().state, waiting.reason) == ("cancelled", "sent twice")
    assert running.refresh().record.cancelling
    document = cli(*place.options, "jobs", "cancel", *ids, NOWHERE, "--json")
    assert document.code == 2
    outcomes = [job["outcome"] for job in document.json["jobs"]]
    assert outcomes == ["finished", "requested", "finished", "not found"]


def test_delete_says_what_came_of_each(cli: Run, place: Place, shop: Shop):
    done, running = shop.sync.enqueue_many([shop.resize.request(name) for name in "ab"])
    claimed = {record.id: record for record in shop.claim()}
    shop.settle(claimed[done.id], "succeeded", result=b"1")
    waiting = shop.sync.enqueue(shop.resize.request("c"))
    result = cli(*place.options, "jobs", "delete", done.id, running.id, waiting.id)
    assert result.code == 2
    assert result.out.splitlines() == [
        f"Deleted {done.id}",
        f"Running, so not deleted; cancel it first, or add --cancel: {running.id}",
        f"Deleted {waiting.id}",
    ]
    for job in (done, waiting):
        with pytest.raises(JobNotFound):
            job.refresh()
    assert running.refresh().state == "running"
    result = cli(*place.options, "jobs", "rm", done.id)
    assert (result.code, result.out) == (2, f"There is no job {done.id}\n")


def test_delete_takes_finished_jobs_that_fit(cli: Run, place: Place, shop: Shop):
    jobs = shop.sync.enqueue_many([shop.resize.request(name) for name in "abc"])
    claimed = {record.id: record for record in shop.claim()}
    shop.settle(claimed[jobs[0].id], "succeeded", result=b"1")
    shop.settle(claimed[jobs[1].id], "cancelled")
    waiting = shop.sync.enqueue(shop.resize.request("d"))
    matching = ("jobs", "delete", "--task", shop.resize.name)
    result = cli(*place.options, *matching, "--dry-run")
    assert (result.code, result.out) == (
        0,
        "2 succeeded or failed or cancelled jobs match: 2 of resize.\n",
    )
    result = cli(*place.options, *matching, "--yes")
    assert (result.code, result.out) == (0, "Deleted 2 jobs.\n")
    assert {job.id for job in shop.sync.jobs()} == {jobs[2].id, waiting.id}
    result = cli(*place.options, *matching, "--state", "waiting", "--yes")
    assert (result.code, result.out) == (0, "Deleted 1 job.\n")
    assert {job.id for job in shop.sync.jobs()} == {jobs[2].id}
    result = cli(*place.options, *matching, "--state", "running", "--yes")
    assert (result.code, result.out) == (2, "")
    assert "--cancel" in result.err


def test_delete_with_cancel_takes_jobs_in_all_states(cli: Run, place: Place, shop: Shop):
    done, first, second = shop.sync.enqueue_many([shop.resize.request(name) for name in "abc"])
    claimed = {record.id: record for record in shop.claim()}
    shop.settle(claimed[done.id], "succeeded", result=b"1")
    shop.sync.enqueue(shop.resize.request("d"))
    other = shop.sync.enqueue(shop.send.request(7))

    def stop() -> None:
        for job in (first, second):
            wait_until(lambda job=job: job.refresh().record.cancelling)
            shop.settle(claimed[job.id], "cancelled")

    with ThreadPoolExecutor() as pool:
        stopped = pool.submit(stop)
        result = cli(*place.options, "jobs", "rm", "--task", "resize", "--cancel", "--yes")
        stopped.result()
    assert (result.code, result.out) == (0, "Deleted 4 jobs.\n")
    assert {job.id for job in shop.sync.jobs()} == {other.id}


def test_requeue_says_what_came_of_each(cli: Run, place: Place, shop: Shop):
    once = shop.resize.using(unique="cat")
    done, unique = shop.sync.enqueue_many([shop.resize.request("a"), once.request("cat.png")])
    done.cancel()
    unique.cancel()
    taken = shop.sync.enqueue(once.request("cat.png"))
    assert taken.is_new
    result = cli(*place.options, "jobs", "requeue", done.id, unique.id, taken.id)
    assert result.code == 2
    assert result.out.splitlines() == [
        f"Requeued {done.id}",
        f"Another job has its unique key by now: {unique.id}",
        f"Not finished, so it cannot be requeued: {taken.id}",
    ]
    assert done.refresh().state == "waiting"
    done.cancel()
    result = cli(*place.options, "jobs", "requeue", done.id)
    assert (result.code, result.out) == (0, f"Requeued {done.id}\n")


def test_many_ids_are_done_in_slices(cli: Run, place: Place, shop: Shop):
    jobs = shop.sync.enqueue_many([shop.resize.request("x") for _ in range(230)])
    document = cli(*place.options, "jobs", "cancel", *(job.id for job in jobs), "--json").json
    assert {job["outcome"] for job in document["jobs"]} == {"cancelled"}
    assert shop.sync.queues() == []


def test_texts_of_jobs_cannot_steer_the_terminal(cli: Run, place: Place, shop: Shop):
    evil = "evil\x1b[2J\r\u202e"
    job = shop.sync.enqueue(shop.resize.using(tags=[evil]).request(evil))
    [record] = shop.claim()
    shop.fail(record, evil, f"Traceback:\n{evil}\x07")
    for command in (["ls"], ["show", job.id], ["show", job.id, "--json"]):
        result = cli(*place.options, "jobs", *command)
        assert not {"\x1b", "\r", "\x07", "\u202e"} & set(result.out)


def test_arguments_that_are_not_json_do_not_end_the_command(cli: Run, place: Place, shop: Shop):
    job = shop.sync.enqueue(shop.resize.request("cat.png"))
    [record] = shop.claim()
    shop.settle(record, "succeeded", result=b"\xff\x00")
    assert (
        'result      "(2 bytes that are not JSON)"'
        in cli(*place.options, "jobs", "show", job.id).out
    )


def test_a_wrong_state_is_refused(cli: Run, place: Place):
    result = cli(*place.options, "jobs", "ls", "--state", "lost", "--json")
    assert (result.code, result.json["kind"]) == (2, "UsageError")
