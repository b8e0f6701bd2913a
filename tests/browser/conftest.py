"""A browser on a dashboard: real Chromium, a real server, a worker; all in the test's event loop.

These tests run with `make browser`, which installs Playwright and axe-core. `make test` leaves them
out: they need Chromium.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tenure import Tenure

if "BROWSER_CHROMIUM" in os.environ:
    pytest.register_assert_rewrite("tests.browser.window")
    from tests.browser.window import Site, Window, chromium
else:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    async with chromium(os.environ["BROWSER_CHROMIUM"]) as browser:
        yield browser


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Closes what a test has opened."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def open_site(stack: AsyncExitStack) -> Any:
    """Serve the dashboard of an app; returns its `Site`."""

    async def serve(app: Tenure, **options: Any) -> Site:
        return await stack.enter_async_context(Site.of(app, **options))

    return serve


@pytest.fixture
async def open_window(browser: Any) -> AsyncIterator[Any]:
    """Open a window of the browser on a site. At the end no window may have complained."""
    windows: list[Window] = []

    async def opened(site: Site, **options: Any) -> Window:
        windows.append(await Window.of(browser, site, **options))
        return windows[-1]

    yield opened
    for window in windows:
        window.check()


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tenure]:
    """An open app on SQLite, without a worker."""
    async with Tenure(f"sqlite:///{tmp_path}/shop.db", grace=0.1) as app:
        yield app


@pytest.fixture
async def on_each_store(world_url: str, namespace: str) -> AsyncIterator[Tenure]:
    """An open app on each store."""
    async with Tenure(world_url, namespace=namespace, grace=0.1) as app:
        yield app
