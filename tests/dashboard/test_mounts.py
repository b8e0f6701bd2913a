"""Where a dashboard is mounted, and the files of its pages."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from tenure import Tenure
from tenure.dashboard import Dashboard
from tenure.dashboard.assets import Assets
from tests.dashboard.desk import desk_of
from tests.http.wire import send

SHELL = '<html><base href="/"><script src="assets/app.js"></script></html>'


@pytest.fixture
def dashboard(still: Tenure, tmp_path: Path) -> Dashboard:
    """A dashboard with pages of its own."""
    pages = tmp_path / "static"
    (pages / "views").mkdir(parents=True)
    (pages / "index.html").write_text(SHELL)
    (pages / "app.js").write_text("let it = 1")
    (pages / "views" / "jobs.js").write_text("let jobs = 1")
    (pages / "notes.txt").write_text("not served")
    (tmp_path / "secret.js").write_text("secret")
    dashboard = Dashboard(still, auth=lambda _scope: "ann")
    dashboard._assets = Assets(pages)
    return dashboard


def in_starlette(dashboard: Dashboard) -> tuple[Any, str]:
    return Starlette(routes=[Mount("/ops", app=dashboard)]), "/ops"


def in_fastapi(dashboard: Dashboard) -> tuple[Any, str]:
    inner, web = FastAPI(), FastAPI()
    inner.mount("/ops", dashboard)
    web.mount("/ä b", inner)
    return web, "/%C3%A4%20b/ops"


def as_itself(dashboard: Dashboard) -> tuple[Any, str]:
    return dashboard, ""


@pytest.mark.parametrize("serve", [as_itself, in_starlette, in_fastapi])
async def test_it_works_wherever_it_is_mounted(dashboard: Dashboard, serve: Any) -> None:
    web, prefix = serve(dashboard)
    async with desk_of(web, prefix) as desk:
        for path in ("", "jobs", "jobs/", "jobs/1", "timers/a%2Fb", "locks", "replicas", "events"):
            reply = await desk.client.get(path)
            assert reply.status_code == 200, path
            assert f'<base href="{prefix}/">' in reply.text
            assert reply.headers["content-type"] == "text/html; charset=utf-8"
        for path in ("nowhere", "locks/1", "jobs/1/2"):
            assert (await desk.client.get(path)).status_code == 404
        assert (await desk.client.get("assets/views/jobs.js")).text == "let jobs = 1"
        await desk.post("api/queues/a%2Fb/pause", seconds=None, reason="")
        queues = (await desk.get("api/overview"))["queues"]
        assert [queue["name"] for queue in queues] == ["a/b"]
        await desk.get("api/timers/a%2Fb%2F..", 404)
        await desk.get("api/none", 404)
        await desk.get("api", 404)
        assert (await desk.client.delete("api/jobs")).status_code == 405
        assert (await desk.client.get("api/queues/x/pause")).status_code == 405


async def test_the_path_of_a_mount_is_escaped(dashboard: Dashboard) -> None:
    scope = {"type": "http", "method": "GET", "headers": [], "path": "/", "query_string": b""}
    body = b""

    async def respond(message: Any) -> None:
        nonlocal body
        body += message.get("body", b"")

    root = '/"><script>x</script>'
    await dashboard({**scope, "root_path": root, "path": f"{root}/"}, None, respond)  # type: ignore[arg-type]
    assert b"<script>x" not in body
    assert b'<base href="/%22%3E%3Cscript%3Ex%3C/script%3E/">' in body


@pytest.mark.parametrize(
    "target",
    [
        b"/assets/../secret.js",
        b"/assets/..%2fsecret.js",
        b"/assets/%2e%2e/secret.js",
        b"/assets/views/../../secret.js",
        b"/assets//etc/passwd",
        b"/assets/%2fetc%2fpasswd",
        b"/assets/app.js%00",
        b"/assets/notes.txt",
        b"/assets/",
        b"/assets/views",
        b"/assets/..\\secret.js",
        b"//assets/../secret.js",
        b"/assets",
    ],
)
async def test_no_other_file_is_served(dashboard: Dashboard, target: bytes) -> None:
    reply = await send(dashboard, "GET", target)
    assert reply.status == 404
    assert b"secret" not in reply.body.replace(target, b"")


async def test_assets_are_checked_and_not_sent_again(dashboard: Dashboard) -> None:
    async with desk_of(dashboard) as desk:
        first = await desk.client.get("assets/app.js")
        assert first.headers["content-type"] == "text/javascript; charset=utf-8"
        assert first.headers["cache-control"] == "no-cache"
        condition = {"if-none-match": first.headers["etag"]}
        again = await desk.client.get("assets/app.js", headers=condition)
        assert (again.status_code, again.content) == (304, b"")
        head = await desk.client.head("assets/app.js")
        assert (head.content, head.headers["content-length"]) == (b"", "10")


async def test_long_addresses_are_refused(dashboard: Dashboard) -> None:
    for target in (b"/" + b"x" * 5000, b"/api/jobs?" + b"x" * 5000):
        assert (await send(dashboard, "GET", target)).status == 413
    for query in (b"?tag=%ff", b"?" + b"a&" * 100):
        assert (await send(dashboard, "GET", b"/api/jobs" + query)).status in (200, 400)


async def test_it_takes_part_in_a_lifespan(dashboard: Dashboard) -> None:
    messages = iter(["lifespan.startup", "lifespan.shutdown"])
    answers = []

    async def receive() -> Any:
        return {"type": next(messages)}

    async def respond(message: Any) -> None:
        answers.append(message["type"])

    await dashboard({"type": "lifespan"}, receive, respond)
    assert answers == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_the_pages_come_with_the_package() -> None:
    files = Assets()._files
    assert all(path.is_file() for path in files.values())
