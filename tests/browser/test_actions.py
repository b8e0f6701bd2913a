"""What a viewer does from the pages: it happens in the store, after one question."""

import asyncio
import re
from contextlib import AsyncExitStack
from typing import Any

from playwright.async_api import expect

from tenure import Tenure
from tests.browser.shop import Shop
from tests.rig.wait import wait_until_async


async def test_filters_are_in_the_address(app: Tenure, open_site: Any, open_window: Any) -> None:
    shop = Shop(app)
    tagged = await shop.import_catalog.using(tags=["acme"]).enqueue()
    await shop.import_catalog.enqueue()
    window = await open_window(await open_site(app))
    await window.goto("jobs")
    rows = window.page.locator("tbody tr")
    await expect(rows).to_have_count(2)
    await window.page.get_by_label("Tag").fill("acme")
    await window.page.keyboard.press("Enter")
    await expect(rows).to_have_count(1)
    await expect(window.page).to_have_url(re.compile(r"jobs\?tag=acme$"))
    await window.page.get_by_role("link", name="waiting").first.click()
    await expect(window.page).to_have_url(re.compile(r"state=waiting&tag=acme$"))
    await window.page.go_back()
    await window.page.go_back()
    await expect(rows).to_have_count(2)
    await window.goto(f"jobs?id={tagged.id[-8:]}")
    await window.sees("import_catalog")
    await expect(rows).to_have_count(1)
    await window.goto("jobs?task=unknown")
    await window.sees("No job matches")


async def test_failed_jobs_are_requeued_together(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    jobs = [await shop.charge.enqueue(order) for order in range(3)]
    for job in jobs:
        await job.wait(timeout=20)
    await app.pause_queue("billing")
    window = await open_window(await open_site(app))
    await window.goto("jobs?state=failed&task=charge")
    await window.button("Requeue all…").click()
    dialog = window.page.locator("dialog")
    await expect(dialog).to_contain_text("Requeue 3 failed jobs?")
    await expect(dialog).to_contain_text("task “charge”")
    await window.confirm()
    await expect(window.page.locator("#toasts")).to_contain_text("Requeued 3 jobs.")
    assert [(await app.job(job.id)).state for job in jobs] == ["waiting"] * 3


async def test_jobs_are_chosen_one_by_one(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    jobs = await shop.trade()
    window = await open_window(await open_site(app))
    await window.goto("jobs")
    bar = window.page.get_by_role("region", name="Chosen jobs")
    await expect(bar).to_have_count(0)
    for state in ("failed", "waiting"):
        await window.page.get_by_label(re.compile(f"^Choose .* {jobs[state][-8:]}$")).check()
    await expect(bar).to_contain_text("2 chosen")
    await window.button("Requeue 1…").wait_for()
    await window.button("Cancel 1…").wait_for()
    await app.pause_queue("mail")  # the page is drawn anew, and they stay chosen
    await expect(bar).to_contain_text("2 chosen")
    await window.button("Delete 2…").click()
    await expect(window.page.locator("dialog")).to_contain_text("Delete 2 chosen jobs?")
    await window.confirm()
    await expect(window.page.locator("#toasts")).to_contain_text("Deleted 2 jobs.")
    await expect(bar).to_have_count(0)
    left = {job.id for job in await app.jobs()}
    assert left == {jobs[state] for state in ("succeeded", "running", "cancelled")}
    await window.page.get_by_label("Choose all that are shown").check()
    await expect(bar).to_contain_text("3 chosen")
    await window.button("Clear").click()
    await expect(bar).to_have_count(0)


async def test_a_page_acts_after_its_browser_has_lost_its_cookies(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    job = await shop.import_catalog.enqueue()
    window = await open_window(await open_site(app))
    window.allowed = ("403",)
    await window.goto(f"jobs/{job.id}")
    await window.page.context.clear_cookies()
    await window.button("Cancel…").click()
    await window.confirm()
    assert (await app.job(job.id)).state == "cancelled"


async def test_a_dialog_that_is_left_changes_nothing(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    job = await shop.import_catalog.enqueue()
    window = await open_window(await open_site(app))
    await window.goto("jobs?state=waiting")
    await window.button("Cancel all…").click()
    await window.page.locator("dialog").wait_for()
    await window.page.keyboard.press("Escape")
    await expect(window.page.locator("dialog")).to_have_count(0)
    assert (await app.job(job.id)).state == "waiting"


async def test_one_job_is_cancelled_requeued_and_deleted(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    job = await shop.import_catalog.enqueue()
    window = await open_window(await open_site(app))
    await window.goto(f"jobs/{job.id}")
    await window.button("Cancel…").click()
    await window.page.get_by_label("Reason, for your colleagues").fill("a wrong supplier")
    await window.confirm()
    await window.sees(re.compile("was cancelled .*a wrong supplier", re.IGNORECASE))
    await window.button("Requeue…").click()
    await window.confirm()
    await window.button("Cancel…").click()
    await window.confirm()
    await window.button("Delete…").click()
    await window.confirm()
    await expect(window.page).to_have_url(re.compile(r"jobs\?task=import_catalog$"))
    await window.sees("No job matches")


async def test_contents_are_masked_until_they_are_revealed(
    app: Tenure, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    job = await shop.send_mail.using(delay="1h").enqueue(4711)
    window = await open_window(await open_site(app))
    await window.goto(f"jobs/{job.id}")
    await window.sees("••••••••")
    await expect(window.text("4711")).to_have_count(0)
    await window.button("Reveal").click()
    await window.sees(re.compile('"user": 4711'))


async def test_a_timer_is_paused_triggered_and_resumed(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    sweep = app.timer_handle("sweep")
    window = await open_window(await open_site(app))
    await window.goto("timers")
    await window.button("Pause sweep").click()
    await window.page.get_by_label("Reason, for your colleagues").fill("release 4.2")
    await window.confirm()
    await window.sees("paused")
    pause = (await sweep.info()).pause
    assert pause is not None
    assert pause.reason == "release 4.2"
    await window.button("Trigger sweep").click()
    await wait_until_async(lambda: shop.swept == 1)
    await window.button("Resume sweep").click()
    await window.button("Pause sweep").wait_for()
    assert (await sweep.info()).pause is None
    await window.button("Freeze all timers…").click()
    await window.confirm()
    await window.sees("All timers and schedules are frozen")
    await window.button("Resume all timers").click()
    await window.button("Freeze all timers…").wait_for()
    assert await app.timers_paused() is None


async def test_a_queue_is_paused_and_resumed(app: Tenure, open_site: Any, open_window: Any) -> None:
    shop = Shop(app)
    job = await shop.import_catalog.enqueue()
    window = await open_window(await open_site(app))
    await window.goto()
    await window.button("Pause queue catalog").click()
    await window.page.get_by_label("For how long").select_option("Until it is resumed")
    await window.confirm()
    await window.button("Resume queue catalog").click()
    await window.button("Pause queue catalog").wait_for()
    assert (await app.job(job.id)).state == "waiting"


async def test_a_lock_is_released_and_the_next_in_line_gets_it(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    hold = await app.lock("invoice:42", on_lost="ignore").acquire()
    waiting = asyncio.create_task(app.lock("invoice:42").acquire(wait=30))
    window = await open_window(await open_site(app))
    await window.goto("locks")
    await window.sees("1 caller in line")
    await window.button(re.compile("Release invoice:42")).click()
    dialog = window.page.locator("dialog")
    await expect(dialog).to_contain_text(f"with fence {hold.fence}")
    await window.confirm()
    other = await waiting
    assert other.fence > hold.fence
    await window.sees(str(other.fence))
    await other.release()
    await window.sees("No lock is held.")


async def test_without_a_sign_in_there_are_no_actions(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    shop = Shop(app)
    await shop.open(stack)
    jobs = await shop.trade()
    window = await open_window(await open_site(app, viewer=None))
    async with app.lock("invoice:42"):
        for path in ("", "jobs?state=failed", "timers", "locks", f"jobs/{jobs['failed']}"):
            await window.goto(path)
            await expect(window.page.locator(".about")).to_contain_text("read-only")
            verbs = re.compile("Pause|Trigger|Freeze|Release|Requeue|Cancel|Delete|Reveal")
            await expect(window.button(verbs)).to_have_count(0)


async def test_a_timer_whose_name_is_a_dot_is_paused_alone(
    app: Tenure, stack: AsyncExitStack, open_site: Any, open_window: Any
) -> None:
    @app.timer(cron="0 3 1 1 *", name=".")
    async def dot() -> None: ...

    await stack.enter_async_context(app.worker())
    await wait_until_async(app.timers)
    handle = app.timer_handle(".")
    window = await open_window(await open_site(app))
    await window.goto("timers")
    await window.page.get_by_role("link", name=".", exact=True).click()
    await expect(window.page.locator("h1")).to_have_text(".")
    await window.button("Pause .").click()
    await window.confirm()
    await window.button("Resume .").wait_for()
    assert (await handle.info()).pause is not None
    assert await app.timers_paused() is None
    await window.page.reload()
    await expect(window.page.locator("h1")).to_have_text(".")
