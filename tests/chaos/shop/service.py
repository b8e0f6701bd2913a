"""The shop's app, as a newcomer would write it: every setting has its default.

Where its store and its mail server are stands in the environment. Everything it does outside the
store is written to a ledger. Lines are not synced: processes are killed here, the machine is not.
"""

import asyncio
import os
import smtplib
from email.message import EmailMessage
from pathlib import Path

from tenure import Tenure, Unique
from tenure.runtime.attempts.job_context import current_job
from tenure.timers import Tick
from tests.chaos.diary import Diary
from tests.rig.servers.sockets import LOOPBACK

app = Tenure()
diary = Diary(Path(os.environ["SHOP_LEDGERS"]), f"process-{os.getpid()}", is_durable=False)
_MAIL_PORT = int(os.environ["SHOP_MAIL_PORT"])


@app.task(queue="mail")
def send_mail(number: int) -> None:
    """Send a mail; by its id, the mail server sees repeats and which process they come from."""
    message = EmailMessage()
    message["From"], message["To"] = "shop@example.com", f"customer-{number}@example.com"
    message["Message-ID"] = f"<{current_job().id}@{diary.by}>"
    message.set_content(f"Thank you for order {number}.")
    with smtplib.SMTP(LOOPBACK, _MAIL_PORT, timeout=5) as server:
        server.send_message(message)


@app.task
async def charge(number: int) -> int:
    """Charge the customer of an order."""
    diary.write("charged", job=current_job().id, number=number)
    return number


@app.task
async def check_out(number: int) -> int:
    """Charge the customer in a job of its own, and wait for it."""
    payment = charge.using(unique=Unique(f"charge:{number}", keep="1d"))
    return await (await payment.enqueue(number)).result()


async def _report(number: int, seconds: float) -> None:
    await asyncio.sleep(seconds)
    diary.write("reported", job=current_job().id, number=number)


report_big = app.task(name="report_big", queue="tenant-big")(_report)
report_small = app.task(name="report_small", queue="tenant-small")(_report)


@app.timer(every="2s")
async def refresh(tick: Tick) -> None:
    """Leave a trace of a tick."""
    diary.write("chimed", key=tick.name, tick=int(tick.nominal.timestamp()))


@app.timer(cron="* * * * *")
async def close_orders(tick: Tick) -> None:
    """Leave a trace of a tick."""
    diary.write("chimed", key=tick.name, tick=int(tick.nominal.timestamp()))
