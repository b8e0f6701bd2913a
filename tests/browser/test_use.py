"""Themes, small screens, the keyboard, and text that was written to break pages."""

import re
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import expect

from tenure import Tenure
from tenure.core.durations import duration
from tenure.core.jobs.records import NewJob
from tenure.dashboard import matches
from tests.browser.shop import HOSTILE, LONG, Shop
from tests.browser.window import DESK, PHONE

GROUND = "getComputedStyle(document.body).backgroundColor"


async def test_the_theme_is_that_of_the_system_until_it_is_chosen(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    window = await open_window(await open_site(app), theme="dark")
    await window.goto()
    dark = await window.page.evaluate(GROUND)
    switch = window.page.locator("button.theme")
    await switch.click()
    light = await window.page.evaluate(GROUND)
    assert light != dark
    await window.page.reload()
    await switch.wait_for()
    assert await window.page.evaluate(GROUND) == light
    await switch.click()
    await switch.click()
    assert await window.page.evaluate(GROUND) == dark


async def test_a_phone_has_a_bar_and_cards(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    await shop.trade()
    window = await open_window(await open_site(app), size=PHONE)
    await window.goto("jobs")
    bar = await window.page.locator("#side").bounding_box()
    assert bar is not None
    assert bar["y"] + bar["height"] == PHONE[1]
    await expect(window.page.locator("thead")).to_be_hidden()
    await window.page.get_by_role("link", name="Timers").click()
    await window.sees("sweep")
    await window.page.get_by_role("link", name="Overview").click()
    await window.sees("Next ticks")


async def test_all_is_reached_by_keyboard(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    failed = await shop.charge.enqueue(42)
    await failed.wait(timeout=20)
    await app.pause_queue("billing")
    window = await open_window(await open_site(app))
    keyboard = window.page.keyboard
    await window.goto()
    await window.page.evaluate("document.activeElement.blur()")
    await keyboard.press("g")
    await keyboard.press("t")
    await window.sees("nightly")
    await keyboard.press("?")
    await expect(window.page.locator("dialog")).to_contain_text("search")
    await keyboard.press("Escape")
    await keyboard.press("/")
    await keyboard.type(failed.id)
    await keyboard.press("Enter")
    await window.sees("failed")
    requeue = window.button("Requeue…")
    await requeue.wait_for()
    for _ in range(40):
        await keyboard.press("Tab")
        if await requeue.evaluate("element => element === document.activeElement"):
            break
    await expect(requeue).to_be_focused()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert await window.page.evaluate(outline) == "solid"
    await keyboard.press("Enter")
    await window.page.locator("dialog").wait_for()
    await keyboard.press("Enter")
    await expect(window.page.locator("dialog")).to_have_count(0)
    assert (await app.job(failed.id)).state == "waiting"


async def test_the_first_tab_leads_past_the_navigation(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    window = await open_window(await open_site(app))
    await window.goto("jobs")
    await window.page.reload()
    await window.page.locator("main .empty").wait_for()
    await window.page.evaluate("document.activeElement.blur()")
    await window.page.keyboard.press("Tab")
    await expect(window.page.get_by_text("Skip to the content")).to_be_focused()
    await window.page.keyboard.press("Enter")
    await expect(window.page.locator("main")).to_be_focused()
    assert window.page.url.endswith("/jobs")


async def test_the_search_finds_names_and_ends_of_ids(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    job = await shop.import_catalog.enqueue()
    window = await open_window(await open_site(app))
    await window.goto()
    search = window.page.get_by_role("combobox")
    await search.fill("nightl")
    await window.page.get_by_role("option", name="nightly").click()
    await expect(window.page.locator("h1")).to_have_text("nightly")
    await search.fill(job.id[-12:])
    await search.press("Enter")
    await expect(window.page.locator("tbody tr")).to_have_count(1)


async def test_a_search_goes_on_where_it_ended(
    app: Tenure,
    stack: AsyncExitStack,
    open_site: Any,
    open_window: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matches, "PATIENCE", 0.0)  # one look for each request
    shop = Shop(app)
    await shop.open(stack)
    job = await shop.import_catalog.using(delay=3600).enqueue()
    await job.cancel("the shelf is empty")
    window = await open_window(await open_site(app))
    await window.goto("jobs?error=shelf")
    hint = window.page.locator("p.hint")
    await expect(hint).to_have_text("Searched all failed jobs. Other jobs may match.")
    for states in ("failed and waiting", "failed, waiting and running"):
        await window.page.get_by_role("button", name="Search on").click()
        await expect(hint).to_have_text(f"Searched all {states} jobs. Other jobs may match.")
    await window.page.get_by_role("button", name="Search on").click()
    await expect(window.page.locator("tbody tr")).to_have_count(1)
    await expect(hint).to_have_text("Searched all failed, waiting, running and cancelled jobs.")
    await expect(window.page.get_by_role("button", name="Search on")).to_have_count(0)


async def test_names_of_long_modules_can_be_told_apart(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    for name in ("send_mail", "render"):
        task = app.task(name=f"{LONG[:150]}.{name}")(send)
        await task.enqueue()
    site = await open_site(app)
    for size in (DESK, PHONE):
        window = await open_window(site, size=size)
        await window.goto("jobs")
        for name in ("send_mail", "render"):
            tail = window.page.locator(".tail", has_text=re.compile(f"^{name}$"))
            row = window.page.locator("td.wide", has=tail)
            room, end = await row.bounding_box(), await tail.bounding_box()
            assert end["x"] + end["width"] <= room["x"] + room["width"]


async def send() -> None: ...


async def test_lengths_of_time_read_as_in_a_terminal(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    window = await open_window(await open_site(app))
    await window.goto()
    lengths = [0, 0.0002, 0.026, 0.9994, 0.9996, 1.04, 9.94, 9.96, 12, 59.6, 61, 659, 3599, 3661]
    lengths += [7322, 86_399, 90_000, 1_000_000, 40 * 86_400]
    script = """async lengths => {
        const { duration } = await import(new URL("assets/format.js", document.baseURI))
        return lengths.map((length) => duration(length))
    }"""
    assert await window.page.evaluate(script, lengths) == [*map(duration, lengths)]


async def test_sentences_have_the_time_of_the_reader_and_commands_to_copy(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    failed = await shop.charge.enqueue(42)
    await failed.wait(timeout=20)
    window = await open_window(await open_site(app), timezone_id="Asia/Tokyo")
    await window.goto(f"jobs/{failed.id}")
    ended = (failed.finished + timedelta(hours=9)).strftime("%Y-%m-%d %H:%M:%S")
    words = window.page.locator(".why-text")
    await expect(words).to_contain_text(re.compile(f"failed for good at {ended} (GMT[+]9|JST), "))
    await expect(words).not_to_contain_text("UTC")
    utc = failed.finished.strftime("%Y-%m-%d %H:%M:%S UTC")
    await expect(words.locator("time").first).to_have_attribute("title", utc)
    command = window.page.locator(".why-next .command")
    await expect(command).to_have_text(f"tenure jobs requeue {failed.id}")
    await command.click()
    await expect(window.page.locator("#toasts")).to_contain_text("Copied the command")


async def test_hostile_and_long_names_stay_text(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    store = app._engine.services().store
    jobs = []
    for name in (HOSTILE, LONG):
        job = app._jobs._jobs_to_enqueue().new_id()
        new = NewJob(id=job, task=name, queue=name[:60], tags=(name[:60],), payload=b'{"a": 1}')
        await store.jobs.insert([new])
        await app.pause_queue(name[:60], reason=name)
        await store.jobs.beat([name[:30]], ttl=60, meta={"host": name, "pid": name})
        await app.timer_handle("sweep").pause(reason=name)
        jobs.append(job)
    hostile = app.lock(HOSTILE, meta={HOSTILE: HOSTILE})
    async with hostile, app.lock(LONG, meta={"for": LONG}):
        site = await open_site(app, title=HOSTILE)
        for size in (DESK, PHONE):
            window = await open_window(site, size=size)
            paths = ("", "jobs", "timers", "timers/sweep", "locks", "replicas")
            for path in (*paths, *(f"jobs/{job}" for job in jobs)):
                await window.goto(path)
                assert await window.is_within_width(), (path, size)
                assert await window.page.locator("img:not([alt='']), main script").count() == 0
            await window.goto("locks")
            await window.sees(HOSTILE)
            assert window.dialogs == []
