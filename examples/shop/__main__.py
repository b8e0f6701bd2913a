"""A dashboard with something to see: a shop with two workers, failures, timers and locks.

    python examples/shop                http://127.0.0.1:8080, until Ctrl-C
    python examples/shop --port 9000

Two worker processes run the jobs that this process enqueues, on one SQLite file in a temporary
folder. Everybody who reaches the page is signed in as "ann", so it is served on this machine only.
"""

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from datetime import timedelta

import uvicorn

from tenure import Backoff, Tenure, Tick, current_job
from tenure.dashboard import Dashboard, Viewer

FOLDER = None if "TENURE_URL" in os.environ else tempfile.mkdtemp(prefix="tenure-shop-")
URL = os.environ.setdefault("TENURE_URL", f"sqlite:///{FOLDER}/shop.db")  # the workers have it, too

app = Tenure(URL, namespace="shop", grace=1)
chance = random.Random()


@app.task(queue="mail", retry=Backoff(max_attempts=5, base="4s"))
async def send_mail(user: int, template: str = "welcome") -> str:
    await asyncio.sleep(chance.uniform(0.05, 0.6))
    if chance.random() < 0.12:
        raise TimeoutError("smtp.example.com did not answer within 30 s")
    return f"sent {template} to {user}"


@app.task(queue="billing", retry=Backoff(max_attempts=2, base="2s"))
async def charge(order: int, card: str) -> str:
    async with app.semaphore("bank connections", limit=4, ttl=15):
        await asyncio.sleep(chance.uniform(0.5, 4))
    if order % 6 == 0:
        raise ConnectionError(f"502 Bad Gateway from api.bank.example for order {order}")
    await send_mail.enqueue(order, "receipt")
    return card[-4:]


@app.task(timeout=120)
async def build_report(month: int) -> int:
    job = current_job()
    for page in range(1, 41):
        await asyncio.sleep(1.5)
        await job.save({"month": month, "page": page})
        job.progress(page / 40, f"page {page} of 40")
    return month


@app.task(queue="catalog")
async def import_catalog(supplier: str) -> None: ...


@app.timer(every="5s")
async def sync_orders(tick: Tick) -> None:
    await asyncio.sleep(chance.uniform(0.05, 0.4))
    if tick.nominal.second % 25 == 0:
        raise ValueError("the ERP sent an order without a customer")


@app.timer(every="4s", overlap="skip")
async def refresh_rates() -> None:
    await asyncio.sleep(chance.choice([0.5, 0.5, 0.5, 6]))


app.schedule(
    build_report, cron="30 2 * * mon-fri", tz="Europe/Berlin", args=(11,), name="nightly_report"
)


async def run_worker() -> None:
    """Run jobs of all queues but "catalog", and hold some locks, until SIGTERM."""
    async with app:
        turns = [asyncio.create_task(hold(number)) for number in range(2)]
        await app.run_worker(queues=["default", "mail", "billing"], concurrency=6)
        for turn in turns:
            turn.cancel()


async def hold(number: int) -> None:
    """Take turns at a lock, so that there is a holder and a line."""
    while True:
        async with app.lock("stock:berlin", ttl=20, meta={"for": f"shelf {number}"}):
            await asyncio.sleep(chance.uniform(8, 20))


async def enqueue() -> None:
    """Enqueue what a shop does, for ever."""
    await app.enqueue_many(import_catalog.request(name) for name in ("acme", "globex", "initech"))
    for order in range(1, 10**9):
        headers = {"x-request-id": f"r-{order}", "tenant": "acme"}
        shop = charge.using(tags=["shop:berlin"], headers=headers)
        await shop.enqueue(order, "4111111111111111")
        await send_mail.enqueue(order)
        if order % 15 == 1:
            await build_report.enqueue(order % 12 + 1)
        if order % 10 == 0:
            await send_mail.using(delay=timedelta(minutes=10)).enqueue(order, "how was it?")
        await asyncio.sleep(chance.uniform(0.4, 1.2))


async def serve(port: int) -> None:
    """Serve the dashboard, and run two workers beside it."""
    ann = Viewer("ann", may_reveal=True, may_see_owners=True)
    trace = "https://traces.example.com/{trace_id}"
    pages = Dashboard(app, title="shop", auth=lambda _: ann, trace_url=trace)
    config = uvicorn.Config(pages, host="127.0.0.1", port=port, log_level="warning")
    workers = [
        await asyncio.create_subprocess_exec(sys.executable, __file__, "--worker") for _ in range(2)
    ]
    print(f"The dashboard is at http://127.0.0.1:{port} - Ctrl-C stops it.", flush=True)
    try:
        async with app:
            shop = asyncio.create_task(enqueue())
            try:
                await uvicorn.Server(config).serve()
            finally:
                shop.cancel()
                await asyncio.gather(shop, return_exceptions=True)
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.terminate()
        await asyncio.gather(*(worker.wait() for worker in workers))


def main() -> None:
    parser = argparse.ArgumentParser(description="A dashboard with something to see.")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # The workers have to end with this process, also after SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(run_worker() if options.worker else serve(options.port))
    finally:
        if FOLDER is not None:
            shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    main()
