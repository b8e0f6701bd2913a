"""Every page on every store: it shows what is there, and has no serious barriers."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
from playwright.async_api import expect

from tenure import Tenure
from tests.browser.shop import Shop
from tests.browser.window import DESK, PHONE, Window

PAGES = ("", "jobs", "timers", "timers/sweep", "locks", "replicas", "events")


async def test_each_page_shows_what_the_store_has(
    on_each_store: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(on_each_store)
    await shop.open(stack)
    jobs = await shop.trade()
    async with on_each_store.lock("invoice:42"), on_each_store.semaphore("gpu", limit=3):
        window = await open_window(await open_site(on_each_store))
        await window.goto()
        await window.sees("catalog")
        await window.sees("ValueError: no card for order 42")
        await window.sees("nightly")
        await window.goto("jobs")
        for id_ in jobs.values():
            await window.page.get_by_label(f"Copy {id_}").wait_for()
        for state, id_ in jobs.items():
            await window.goto(f"jobs/{id_}")
            await window.sees(state)
            await window.sees("Queue")
        await window.goto(f"jobs/{jobs['failed']}")
        await window.sees("ValueError: no card for order 42")
        await window.goto("timers")
        await window.sees("every 1 h")
        await window.goto("timers/nightly")
        await window.sees("Next ticks")
        await window.goto("locks")
        await window.sees("invoice:42")
        await window.sees("semaphore, 1 of 3 held")
        await window.goto("replicas")
        await window.sees("alive")
        await window.goto("events")
        await window.sees("Nothing to report.")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
async def test_no_serious_barriers(
    app: Tenure,
    stack: AsyncExitStack,
    open_site: Any,
    open_window: Any,
    size: tuple[int, int],
    theme: str,
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    jobs = await shop.trade()
    window: Window = await open_window(await open_site(app), size=size, theme=theme)
    faults: dict[str, list[str]] = {}
    async with app.lock("invoice:42"), app.semaphore("gpu", limit=3):
        for path in (*PAGES, *(f"jobs/{id_}" for id_ in jobs.values())):
            await window.goto(path)
            assert await window.is_within_width(), path
            if found_here := await window.faults():
                faults[path] = found_here
        await window.goto("jobs?state=failed")
        await window.button("Requeue all…").click()
        await window.page.locator("dialog").wait_for()
        faults |= {"dialog": here} if (here := await window.faults()) else {}
    assert faults == {}


async def test_an_empty_store_says_how_to_begin(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    window = await open_window(await open_site(app))
    for path, text in (
        ("", "Nothing has happened on this store yet."),
        ("jobs", "No jobs are stored."),
        ("timers", "No timer or schedule is declared."),
        ("locks", "No lock is held."),
        ("replicas", "No worker is running."),
    ):
        await window.goto(path)
        await window.sees(text)
        assert await window.faults() == []


async def test_what_does_not_exist_is_told(app: Tenure, open_site: Any, open_window: Any) -> None:
    window = await open_window(await open_site(app))
    window.allowed = ("404",)
    await window.goto("jobs/01a1f5a2-5747-7000-bf02-0b3323915cf2")
    await window.sees("There is no such job")
    await window.goto("timers/nothing")
    await window.sees("knows no timer")
    await window.goto("nowhere/at/all")
    await window.sees("This page does not exist.")
    await expect(window.page.locator(".live")).to_have_count(0)
