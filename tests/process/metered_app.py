"""The app of the tests with `--metrics`; it has a metric of its own."""

import os
from types import SimpleNamespace

from prometheus_client import Counter

from tenure import Backoff, Tenure

letters = Counter("shop_letters", "A metric of the service itself.")


def declare(app: Tenure) -> SimpleNamespace:
    """Declare the tasks, in the worker and in the test that enqueues."""

    @app.task(queue="mail")
    async def send(user: str) -> str:
        letters.inc()
        return user

    @app.task(queue="mail", retry=Backoff(max_attempts=1))
    async def die() -> None:
        os._exit(7)

    return SimpleNamespace(send=send, die=die)


app = Tenure()
declare(app)
