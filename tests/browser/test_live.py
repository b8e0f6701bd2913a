"""Pages follow what happens without a reload, and do not move under the reader."""

import re
from contextlib import AsyncExitStack
from typing import Any

from playwright.async_api import expect

from tenure import Tenure
from tenure.testing import Faults, FaultyStore
from tests.browser.shop import Shop


async def test_a_job_is_followed_to_its_end(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    job = await shop.build_report.enqueue(5)
    window = await open_window(await open_site(app))
    await window.goto(f"jobs/{job.id}")
    await window.sees("running")
    shop.gate.set()
    await window.sees(re.compile("It succeeded"))


async def test_the_overview_follows_the_store(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    window = await open_window(await open_site(app))
    await window.goto()
    await window.sees("Nothing has happened on this store yet.")
    await shop.import_catalog.enqueue()
    await window.sees("no worker")


async def test_new_rows_wait_until_they_are_asked_for(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    first = await shop.import_catalog.enqueue()
    window = await open_window(await open_site(app))
    await window.goto("jobs")
    rows = window.page.locator("tbody tr")
    await expect(rows).to_have_count(1)
    second, third = [await shop.import_catalog.enqueue() for _ in range(2)]
    await window.button("2 new").wait_for()
    await expect(rows).to_have_count(1)
    # A known row changes in place meanwhile.
    await first.cancel()
    await expect(rows.first).to_contain_text("cancelled")
    await window.page.keyboard.press("n")
    await expect(rows).to_have_count(3)
    for job in (first, second, third):
        await window.page.get_by_label(f"Copy {job.id}").wait_for()


async def test_a_page_keeps_focus_and_typed_text_while_it_changes(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.import_catalog.enqueue()
    window = await open_window(await open_site(app))
    await window.goto("jobs")
    task, tag = window.page.get_by_label("Task", exact=True), window.page.get_by_label("Tag")
    await task.fill("import")
    await tag.focus()
    await shop.import_catalog.enqueue()
    await window.button("1 new").wait_for()
    assert await task.input_value() == "import"
    await expect(tag).to_be_focused()


async def test_a_store_that_is_away_greys_the_page(open_site: Any, open_window: Any) -> None:
    faults = Faults()
    async with Tenure(FaultyStore("memory://", faults)) as app, app.lock("invoice:42"):
        window = await open_window(await open_site(app))
        window.allowed = ("503",)
        await window.goto("locks")
        await window.sees("invoice:42")
        for call in ("leases", "list", "find", "listing"):
            faults.lose_request(call, times=10_000)
        banner = window.page.locator("#banner")
        await expect(banner).to_contain_text("old. The page tries again", timeout=20_000)
        await expect(window.page.locator("body.is-stale")).to_have_count(1)
        await expect(window.page.locator(".live")).to_have_text("Old data")
        await window.sees("invoice:42")
        assert await window.faults() == []
        late = await open_window(window.site)
        late.allowed = ("503",)
        await late.goto("locks")
        await late.sees("There is nothing to show yet.")
        await expect(late.page.locator(".live")).to_have_text("No data")
        faults.heal()
        await expect(banner).to_be_hidden(timeout=20_000)
        await expect(window.page.locator("body.is-stale")).to_have_count(0)
