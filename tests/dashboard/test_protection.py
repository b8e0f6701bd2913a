"""Pages of other origins, forged requests and strangers: what the dashboard refuses."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from tenure import Tenure
from tenure.dashboard import BasicAuth, Dashboard, Viewer
from tenure.errors import ConfigError
from tests.dashboard.desk import ANN, Desk, desk_of, desk_on

PAUSE = "api/queues/mail/pause"
BODY = {"seconds": None, "reason": ""}


async def paused(app: Tenure) -> bool:
    return any(queue.paused_for is not None for queue in await app.queues())


async def post(desk: Desk, headers: Mapping[str, str], **request: Any) -> httpx2.Response:
    """Send a pause with these headers in place of those of a browser."""
    token = (await desk.get("api/session"))["token"]
    sent = {"x-tenure-token": token, "content-type": "application/json", **headers}
    desk.client.headers.pop("sec-fetch-site", None)
    try:
        request = {"content": json.dumps(BODY)} | request
        return await desk.client.post(PAUSE, headers=sent, **request)
    finally:
        desk.client.headers["sec-fetch-site"] = "same-origin"


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {"sec-fetch-site": "same-origin"}),
        (200, {"origin": "http://ops.test"}),
        (200, {"origin": "https://OPS.test"}),  # behind a proxy that ends TLS
        (403, {"sec-fetch-site": "cross-site"}),
        (403, {"sec-fetch-site": "same-site"}),
        (403, {"sec-fetch-site": "none"}),
        (403, {"sec-fetch-site": "cross-site", "origin": "http://ops.test"}),
        (403, {"origin": "http://evil.test"}),
        (403, {"origin": "http://ops.test.evil.test"}),
        (403, {"origin": "http://ops.test:81"}),
        (403, {"origin": "null"}),
        (403, {"origin": "null", "host": ""}),
        (403, {"origin": "http://["}),
        (403, {"origin": "http://ops.test", "host": "["}),
        (403, {}),
        (403, {"sec-fetch-site": "same-origin", "x-tenure-token": ""}),
        (403, {"sec-fetch-site": "same-origin", "x-tenure-token": "é"}),
        (415, {"sec-fetch-site": "same-origin", "content-type": "text/plain"}),
        (
            415,
            {
                "sec-fetch-site": "same-origin",
                "content-type": "application/x-www-form-urlencoded",
            },
        ),
    ],
)
async def test_only_its_own_pages_act(still: Tenure, status: int, headers: dict[str, str]) -> None:
    async with desk_on(still) as desk:
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        reply = await post(desk, encoded)  # type: ignore[arg-type] # as bytes
        assert reply.status_code == status, reply.text
        assert await paused(still) == (status == 200)


async def test_a_token_is_of_one_viewer_and_one_browser(still: Tenure) -> None:
    names = iter(["ann", "bob", "ann"])
    dashboard = Dashboard(still, auth=lambda _scope: next(names))
    async with desk_of(dashboard) as desk:
        token = (await desk.get("api/session"))["token"]
        headers = {"x-tenure-token": token}
        reply = await desk.client.post(PAUSE, json=BODY, headers=headers)
        assert reply.status_code == 403
        assert reply.json()["is_stale_token"]
    async with desk_on(still) as desk, desk_of(desk.dashboard) as other:
        theirs = (await other.get("api/session"))["token"]
        assert (await desk.get("api/session"))["token"] not in (token, theirs)
        reply = await desk.client.post(PAUSE, json=BODY, headers={"x-tenure-token": theirs})
        assert (reply.status_code, await paused(still)) == (403, False)
        desk.client.cookies.clear()
        reply = await desk.client.post(PAUSE, json=BODY, headers={"x-tenure-token": theirs})
        assert reply.status_code == 403


async def test_a_page_of_one_replica_acts_at_another(still: Tenure) -> None:
    """Behind a balancer, requests of a page go to any replica."""
    async with desk_on(still) as first, desk_on(still) as second:
        token = (await first.get("api/session"))["token"]
        second.client.cookies.update(first.client.cookies)
        reply = await second.client.post(PAUSE, json=BODY, headers={"x-tenure-token": token})
        assert (reply.status_code, await paused(still)) == (200, True)
        assert (await second.get("api/session"))["token"] == token


@pytest.mark.parametrize(
    ("prefix", "path"), [("", "/"), ("/ops", "/ops/"), ("/a b;c", "/a%20b%3Bc/")]
)
async def test_the_cookie_of_a_browser(still: Tenure, prefix: str, path: str) -> None:
    dashboard = Dashboard(still, auth=lambda _scope: "ann")
    for scheme in ("http", "https"):
        transport = httpx2.ASGITransport(app=dashboard, root_path=prefix)
        headers = {"sec-fetch-site": "same-origin"}
        async with httpx2.AsyncClient(transport=transport, headers=headers) as client:
            reply = await client.get(f"{scheme}://ops.test{prefix}/api/jobs")
            assert "set-cookie" not in reply.headers
            reply = await client.get(f"{scheme}://ops.test{prefix}/api/session")
            key, *attributes = reply.headers["set-cookie"].split("; ")
            secure = ["Secure"] if scheme == "https" else []
            assert attributes == [f"Path={path}", "HttpOnly", "SameSite=Strict", *secure]
            for junk in ("tenure-browser=x", f"tenure-browser={'g' * 64}", "a; tenure-browser"):
                reply = await client.get(
                    f"{scheme}://ops.test{prefix}/api/session", headers={"cookie": junk}
                )
                assert reply.headers["set-cookie"].partition(";")[0] != key
            reply = await client.get(
                f"{scheme}://ops.test{prefix}/api/session", headers={"cookie": f"a=b; {key}"}
            )
            assert "set-cookie" not in reply.headers
    async with desk_on(still, None) as desk:
        assert "set-cookie" not in (await desk.client.get("api/session")).headers


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (400, b""),
        (400, b"[]"),
        (400, b"{"),
        (400, b'{"seconds": ' + b"[" * 10_000),
        (400, b"\xff"),
        (413, b'{"reason": "' + b"x" * 16_384 + b'"}'),
    ],
)
async def test_bodies_are_bounded_json_objects(still: Tenure, status: int, content: bytes) -> None:
    async with desk_on(still) as desk:
        headers = {"sec-fetch-site": "same-origin"}
        reply = await post(desk, headers, content=content)
        assert reply.status_code == status
        assert not await paused(still)


async def test_reads_are_refused_to_foreign_pages(still: Tenure) -> None:
    async with desk_on(still) as desk:
        for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):
            for path in ("api/session", "api/jobs", "api/stream"):
                assert (await desk.client.get(path, headers=headers)).status_code == 403
        # A link of a chat opens the page itself, and a person may open the API by hand.
        assert (await desk.client.get("", headers=headers)).status_code != 403
        headers = {"sec-fetch-site": "none"}
        assert (await desk.client.get("api/session", headers=headers)).status_code == 200


ADDRESSES = (
    *("", "jobs", "nowhere", "assets/none.js", "api/session", "api/overview", "api/none"),
    *("api/jobs?state=none", "api/stream?topics=none", PAUSE),
)


METHODS = ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD")


@pytest.mark.parametrize("method", METHODS)
async def test_each_answer_has_the_headers_that_protect_it(still: Tenure, method: str) -> None:
    async with desk_on(still) as desk:
        for address in ADDRESSES:
            _check_headers(method, await desk.client.request(method, address))


def _check_headers(method: str, reply: httpx2.Response) -> None:
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    for directive in ("frame-ancestors 'none'", "form-action 'none'", "base-uri 'self'"):
        assert directive in policy
    assert "unsafe" not in policy
    assert "*" not in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"
    assert reply.headers["cross-origin-opener-policy"] == "same-origin"
    assert reply.headers["cache-control"] in ("no-store", "no-cache")
    assert not any(name.startswith("access-control-") for name in reply.headers)
    if reply.status_code == 405:
        assert reply.headers["allow"] in ("GET, HEAD", "POST")
    if method in ("PUT", "DELETE", "OPTIONS"):
        assert reply.status_code in (403, 404, 405)


async def test_a_get_never_acts(still: Tenure) -> None:
    @still.task
    async def work() -> None: ...

    job = await work.enqueue()
    async with desk_on(still) as desk:
        for path in (PAUSE, f"api/jobs/{job.id}/cancel", "api/locks/release", "api/jobs/bulk"):
            reply = await desk.client.get(path)
            assert reply.status_code in (404, 405)
    assert (await job.refresh()).state == "waiting"
    assert not await paused(still)


# Viewers.


async def later(_scope: Any) -> Viewer:
    return Viewer("late")


class Sso:
    """A sign-in as an object."""

    async def __call__(self, _scope: Any) -> str:
        return "sso"


@pytest.mark.parametrize(
    ("auth", "name"),
    [(lambda _: "ann", "ann"), (lambda _: ANN, "ann"), (later, "late"), (Sso(), "sso")],
)
async def test_auth_names_the_viewer(still: Tenure, auth: Any, name: str) -> None:
    async with desk_of(Dashboard(still, auth=auth)) as desk:
        session = await desk.get("api/session")
        assert session["viewer"] == name
        assert session["may"]["act"]
        assert session["may"]["reveal"] == (name == "ann" and auth(None) is ANN)


@pytest.mark.parametrize("answer", [None, "", 0, True, ["ann"], Viewer("")])
async def test_whom_auth_does_not_know_gets_nothing(still: Tenure, answer: Any) -> None:
    async with desk_of(Dashboard(still, auth=lambda _scope: answer)) as desk:
        for path in ("", "jobs", "assets/app.js", "api/session", "api/jobs", "api/stream"):
            reply = await desk.client.get(path)
            assert reply.status_code == 401
            assert "www-authenticate" not in reply.headers
        assert (await desk.client.post(PAUSE, json=BODY)).status_code == 401


HTML = {"accept": "text/html,application/xhtml+xml"}


async def test_people_without_a_viewer_see_a_page(still: Tenure) -> None:
    async with desk_of(Dashboard(still, auth=lambda _scope: None)) as desk:
        for path in ("", "jobs", "api/jobs"):
            reply = await desk.client.get(path, headers=HTML)
            assert (reply.status_code, reply.headers["content-type"]) == (
                401,
                "text/html; charset=utf-8",
            )
            assert "<h1>Sign in first</h1>" in reply.text
        assert (await desk.client.get("jobs")).json()["title"] == "Sign in first"
    async with desk_on(still, None, hosts=["<b>.test"]) as desk:
        reply = await desk.client.get("jobs", headers=HTML)
        assert reply.status_code == 421
        assert "<b>" not in reply.text


@pytest.mark.parametrize(
    ("sign_in", "location"),
    [
        ("/login", "/login"),
        ("/login?next={next}", "/login?next=%2Fops%2Fjobs%3Fstate%3Dfailed%26tag%3Da%252Fb"),
    ],
)
async def test_people_are_sent_to_the_sign_in(still: Tenure, sign_in: str, location: str) -> None:
    dashboard = Dashboard(still, auth=lambda _scope: None, sign_in=sign_in)
    transport = httpx2.ASGITransport(app=dashboard, root_path="/ops")
    async with httpx2.AsyncClient(transport=transport, base_url="http://ops.test/ops/") as client:
        reply = await client.get("jobs?state=failed&tag=a%2Fb", headers=HTML)
        assert (reply.status_code, reply.headers["location"]) == (303, location)
        assert (await client.get("api/jobs")).status_code == 401


async def test_what_auth_raises_stays_here(still: Tenure, caplog: pytest.LogCaptureFixture) -> None:
    def auth(_scope: object) -> str:
        raise LookupError("canary: ldap://admin:hunter2@directory")

    async with desk_of(Dashboard(still, auth=auth)) as desk:
        for path in ("", "api/session"):
            reply = await desk.client.get(path)
            assert reply.status_code == 500
            assert "canary" not in reply.text
            assert "canary" not in str(reply.headers)
    assert "auth= of the dashboard failed" in caplog.text


async def test_basic_auth_takes_one_name_and_one_password(still: Tenure) -> None:
    auth = BasicAuth(Viewer("ann:e"[:3]), "pass:wörd")
    async with desk_of(Dashboard(still, auth=auth)) as desk:
        for credentials in ("ann:pass:wörd", "ann:", ":pass:wörd", "ann:pass", "", "bob:pass:wörd"):
            encoded = base64.b64encode(credentials.encode()).decode()
            reply = await desk.client.get(
                "api/session", headers={"authorization": f"Basic {encoded}"}
            )
            right = credentials == "ann:pass:wörd"
            assert reply.status_code == (200 if right else 401)
            assert ("www-authenticate" in reply.headers) == (not right)
        for value in ("Basic", "Basic ???", "Bearer x", "basic " + "/w=="):
            reply = await desk.client.get("api/session", headers={"authorization": value})
            assert reply.status_code == 401


async def test_only_its_own_names_are_answered(still: Tenure) -> None:
    async with desk_on(still, None, hosts=["localhost", "::1"]) as desk:
        for host in ("ops.test", "[", "localhost.evil.test", "evil.test@ops.test", ""):
            reply = await desk.client.get("api/session", headers={"host": host})
            assert reply.status_code == 421, host
        for host in ("localhost:8080", "LOCALHOST", "[::1]:1"):
            reply = await desk.client.get("api/session", headers={"host": host})
            assert reply.status_code == 200, host


def test_wrong_options_are_refused() -> None:
    app = Tenure("memory://")
    for wrong in ({"auth": "ann"}, {"reveal": {"task": "often"}}, {"trace_url": "javascript:x"}):
        with pytest.raises(ConfigError):
            Dashboard(app, **wrong)  # type: ignore[arg-type] # that is what is refused
    with pytest.raises(ConfigError):
        Dashboard("memory://")  # type: ignore[arg-type] # as above


# Contents.


@pytest.mark.parametrize(
    ("rule", "may_reveal", "shown"),
    [
        (None, True, {"user": "ada", "password": "hunter2"}),
        (None, False, None),
        ("always", False, {"user": "ada", "password": "hunter2"}),
        ("never", True, None),
        (["user"], True, {"user": "ada", "password": None}),
        (["user"], False, None),
    ],
)
async def test_contents_are_masked_by_viewer_and_task(
    still: Tenure, rule: Any, may_reveal: bool, shown: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tenure.dashboard")

    @still.task
    async def login(user: str, password: str) -> None: ...

    job = await login.using(headers={"x-tenant": "canary", "x-request-id": "r1"}).enqueue(
        "ada", "hunter2"
    )
    viewer = Viewer("ann", may_reveal=may_reveal)
    reveal = {} if rule is None else {"login": rule}
    async with desk_on(still, viewer, reveal=reveal) as desk:
        document = await desk.get(f"api/jobs/{job.id}")
        assert "hunter2" not in str(document)
        assert ("contents" in document["may"]) == (shown is not None)
        sees_headers = shown is not None and rule in (None, "always")
        assert document["headers"] == {"x-request-id": "r1", "x-tenant": None}
        status = 200 if shown is not None else 403
        answer = await desk.post(f"api/jobs/{job.id}/contents", status)
        if shown is not None:
            assert answer["arguments"] == shown
            tenant = "canary" if sees_headers else None
            assert answer["headers"] == {"x-request-id": "r1", "x-tenant": tenant}
            masked = ["arguments.password", "headers.x-tenant"]
            assert answer["masked"] == (masked if isinstance(rule, list) else [])
    [record] = [record for record in caplog.records if record.name == "tenure.dashboard"]
    assert job.id in record.getMessage()
    assert "hunter2" not in str(record.__dict__)


@pytest.mark.parametrize(("rule", "viewer"), [("never", ANN), ("always", None), (["x"], ANN)])
async def test_sizes_do_not_tell_what_is_masked(
    still: Tenure, rule: Any, viewer: Viewer | None
) -> None:
    @still.task
    async def work(text: str) -> None: ...

    jobs = [await work.enqueue("x" * size) for size in (1, 40, 300)]
    async with desk_on(still, viewer, reveal={"work": rule}) as desk:
        sizes = [(await desk.get(f"api/jobs/{job.id}"))["sizes"] for job in jobs]
    assert [size["arguments"] for size in sizes] == [128, 128, 384]
    assert [size["result"] for size in sizes] == [None] * 3
    async with desk_on(still) as desk:
        exact = (await desk.get(f"api/jobs/{jobs[0].id}"))["sizes"]["arguments"]
    assert exact == len(jobs[0].record.payload)


async def test_without_a_sign_in_nothing_is_revealed(still: Tenure) -> None:
    @still.task
    async def login(password: str) -> str:
        return "canary"

    job = await login.enqueue("canary")
    async with desk_on(still, None, reveal={"*": "always"}) as desk:
        assert "canary" not in str(await desk.get(f"api/jobs/{job.id}"))
        await desk.post(f"api/jobs/{job.id}/contents", 403)


async def test_what_is_too_large_for_a_page_is_named() -> None:
    app = Tenure("memory://", payload_limit=10**6)

    @app.task
    async def work(text: str) -> None: ...

    async with app, desk_on(app) as desk:
        job = await work.enqueue("x" * 300_000)
        contents = await desk.post(f"api/jobs/{job.id}/contents")
        assert (contents["arguments"], contents["too_large"]) == (None, ["arguments"])
