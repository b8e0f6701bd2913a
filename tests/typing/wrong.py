"""Uses of the library that type checkers must refuse: each line with the comment, and no other.

Never run; `test_typing.py` has it checked.
"""

from fastapi import FastAPI

from tenure import Backoff, Job, JobRequest, Tenure, blocking
from tenure.http import AsyncRouter

app = Tenure("memory://")


def use(*values: object) -> None: ...


@app.task
async def send(user: int, template: str = "welcome") -> str:
    return template


@app.task(queue="mail")
def resize(image: str, *, width: int) -> bytes:
    return b""


async def arguments() -> None:
    await send.enqueue("7")  # wrong
    await send.enqueue()  # wrong
    await send.enqueue(7, "bye", 8)  # wrong
    await send.enqueue(7, tmplate="bye")  # wrong
    await send.using(delay=5).enqueue(None)  # wrong
    await resize.enqueue("cat.png")  # wrong
    await resize.enqueue("cat.png", 800)  # wrong
    send.request(user="7")  # wrong
    resize.request("cat.png", width="wide")  # wrong


async def results() -> None:
    number: int = await (await send.enqueue(7)).result()  # wrong
    job: Job[int] = await send.enqueue(7)  # wrong
    request: JobRequest[int] = send.request(7)  # wrong
    jobs: list[Job[int]] = await app.enqueue_many([send.request(7)])  # wrong
    use((await resize.enqueue("cat.png", width=3)).result().real)  # wrong
    use(number, job, request, jobs)


async def calls() -> None:
    number: int = await send(7)  # wrong
    text: str = resize("cat.png", width=3)  # wrong
    send("7")  # wrong
    use(number, text, await resize("cat.png", width=3))  # wrong
    page: int = await (await build.enqueue("x")).result()  # wrong
    use(page)


reports = AsyncRouter(app, prefix="/reports", owner=lambda: "ann")
api = FastAPI()
api.include_router(reports)  # wrong
reports.post("/a", tags=["x"])  # wrong
reports.post("/b", priority="high")  # wrong
use(reports.routes)  # wrong


@reports.post("")
async def build(body: str) -> str:
    return body


async def options() -> None:
    send.using(dely=5)  # wrong
    send.using(priority="high")  # wrong
    send.using(at="tomorrow")  # wrong
    app.task(retry="3")  # wrong
    app.task(retry=Backoff(max_attempts="8"))  # wrong
    app.task(executor="threads")  # wrong
    app.task(7)  # wrong
    await app.jobs(state="lost")  # wrong


def threads() -> None:
    with blocking.Tenure(app) as sync:
        number: int = sync.enqueue(send.request(7)).result()  # wrong
        job: blocking.Job[int] = sync.enqueue(send.request(7))  # wrong
        sync.enqueue(send)  # wrong
        sync.enqueue(send.request("7"))  # wrong
        sync.jobs(state="lost")  # wrong
        use(number, job)
