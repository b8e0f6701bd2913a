"""Chromium, a window of it, and the site that it looks at."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from playwright.async_api import Locator, Page, async_playwright, expect
from starlette.applications import Starlette
from starlette.routing import Mount

from tenure import Tenure
from tenure.dashboard import Dashboard, Viewer
from tests.rig.wait import wait_until_async

ANN = Viewer("ann", may_reveal=True, may_see_owners=True)
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
DESK, PHONE = (1280, 860), (390, 844)
SECONDS = 15_000  # milliseconds: how long a page may take to show something
_AXE = Path(os.environ["BROWSER_AXE"]).read_text(encoding="utf-8")
SERIOUS = ("serious", "critical")


@asynccontextmanager
async def chromium(program: str) -> AsyncIterator[Any]:
    """Start Chromium."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


class Site:
    """A service that mounts a dashboard below /ops."""

    def __init__(self, app: Tenure, url: str) -> None:
        self.app = app
        self.url = url

    @classmethod
    @asynccontextmanager
    async def of(
        cls, app: Tenure, viewer: Viewer | None = ANN, **options: Any
    ) -> AsyncIterator["Site"]:
        """Serve the dashboard of an app at a free port until the block is left."""
        auth = None if viewer is None else lambda _scope: viewer
        dashboard = Dashboard(app, auth=auth, **options)
        service = Starlette(routes=[Mount("/ops", dashboard)])
        config = uvicorn.Config(service, port=0, log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve())  # without handlers of signals
        await wait_until_async(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield cls(app, f"http://127.0.0.1:{port}/ops/")
        finally:
            server.should_exit = True
            await serving
            await dashboard.close()


class Window:
    """A window on a site, and all that its console said."""

    def __init__(self, page: Page, site: Site) -> None:
        self.page = page
        self.site = site
        self.complaints: list[str] = []
        self.dialogs: list[str] = []
        self.allowed: tuple[str, ...] = ()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.dialogs.append(dialog.message))

    @classmethod
    async def of(
        cls,
        browser: Any,
        site: Site,
        size: tuple[int, int] = DESK,
        theme: str = "light",
        **options: Any,
    ) -> "Window":
        """Open a window of a size in CSS pixels, for a reader whose system has a theme."""
        context = await browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=theme, **options
        )
        context.set_default_timeout(SECONDS)
        return cls(await context.new_page(), site)

    async def goto(self, path: str = "") -> None:
        """Load an address of the site, and wait until its page is drawn."""
        await self.page.goto(self.site.url + path)
        await expect(self.page.locator("main h1, main .empty").first).to_be_visible(timeout=SECONDS)

    def text(self, text: str | re.Pattern[str]) -> Locator:
        """Return what shows a text on the page."""
        return self.page.locator("main").get_by_text(text)

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name, exact=isinstance(name, str))

    async def sees(self, text: str | re.Pattern[str]) -> None:
        """Wait until a text is visible on the page, without a reload."""
        await expect(self.text(text).first).to_be_visible(timeout=SECONDS)

    async def confirm(self) -> None:
        """Agree to the dialog that is open, and wait until it has closed."""
        await self.page.locator("dialog button[type=submit]").click()
        await expect(self.page.locator("dialog")).to_have_count(0, timeout=SECONDS)

    async def is_within_width(self) -> bool:
        """Return whether nothing makes the page scroll sideways."""
        return await self.page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )

    async def faults(self) -> list[str]:
        """Return what axe-core finds wrong for readers with disabilities, if it is serious."""
        await self.page.evaluate(_AXE)
        report: Mapping[str, Any] = await self.page.evaluate("axe.run()")
        return [
            f"{fault['id']}: {fault['help']}: {fault['nodes'][0]['html'][:200]}"
            for fault in report["violations"]
            if fault["impact"] in SERIOUS
        ]

    def check(self) -> None:
        """Fail if the console had an error, or a script of data ran."""
        assert self.complaints == []
        assert self.dialogs == []

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            text = f"{message.text} {message.location.get('url', '')}"
            if not any(part in text for part in self.allowed):
                self.complaints.append(text)
