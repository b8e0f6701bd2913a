"""Take the pictures of docs/dashboard.md and the README: python scripts/screenshots.py.

Starts examples/shop, gives its workers a minute, and looks at it with Chromium. Needs what
`make browser` needs.
"""

import argparse
import asyncio
import socket
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright

sys.path.insert(0, str(Path(__file__).parent))
from browser import chromium

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
KILOBYTES_MAX = 200
SIZE = {"width": 1280, "height": 860}
_SHORTEN = """folder => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (texts.nextNode()) {
        texts.currentNode.data = texts.currentNode.data.replaceAll(folder, "")
    }
}"""


def main() -> None:
    """Take all pictures; exit with 1 if one of them is too large."""
    parser = argparse.ArgumentParser(prog="python scripts/screenshots.py", description=__doc__)
    parser.add_argument("--seconds", type=float, default=75, help="of work before the pictures")
    options = parser.parse_args()
    program = chromium()
    if program is None:
        sys.exit("screenshots: needs Chromium: apt-get install chromium fonts-dejavu-core")
    IMAGES.mkdir(exist_ok=True)
    asyncio.run(take(program, options.seconds))
    for picture in sorted(IMAGES.glob("dashboard-*.png")):
        kilobytes = picture.stat().st_size / 1000
        print(f"{picture.relative_to(ROOT)}: {kilobytes:.0f} kB")
        if kilobytes > KILOBYTES_MAX:
            sys.exit(f"screenshots: {picture.name} has more than {KILOBYTES_MAX} kB")


async def take(program: str, seconds: float) -> None:
    """Start the example, and take the pictures."""
    port = free_port()
    command = [sys.executable, "examples/shop", "--port", str(port)]
    example = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, stderr=asyncio.subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}/"
    try:
        await asyncio.to_thread(wait_for, url)
        await asyncio.sleep(seconds)
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=program, args=FLAGS)
            await pictures(browser, url)
            await browser.close()
    finally:
        with suppress(ProcessLookupError):
            example.terminate()
        await example.wait()


async def pictures(browser: Any, url: str) -> None:
    """Take the pictures that the documentation has."""
    light = await page_of(browser, "light")
    await shoot(light, url, "overview")
    failed = await light.evaluate(
        "async () => (await (await fetch('api/jobs?state=failed&task=charge')).json()).jobs[0].id"
    )
    await shoot(light, f"{url}jobs/{failed}", "job")
    dark = await page_of(browser, "dark")
    await shoot(dark, f"{url}timers", "timers", height=380)


async def page_of(browser: Any, theme: str) -> Page:
    context = await browser.new_context(
        viewport=SIZE, color_scheme=theme, timezone_id="Europe/Berlin"
    )
    page: Page = await context.new_page()
    return page


async def shoot(page: Page, url: str, name: str, height: int = SIZE["height"]) -> None:
    """Save what a window shows of a page."""
    await page.set_viewport_size({"width": SIZE["width"], "height": height})
    await page.goto(url)
    await page.locator("main h1").wait_for()
    await page.locator(".live.on").wait_for()
    # Tracebacks name the folder of this checkout, which means nothing to a reader.
    await page.evaluate(_SHORTEN, str(ROOT))
    await page.screenshot(path=IMAGES / f"dashboard-{name}.png")


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def wait_for(url: str) -> None:
    """Return when a server answers."""
    deadline = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - ours
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    main()
