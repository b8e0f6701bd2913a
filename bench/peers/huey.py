"""Huey on SQLite: one thread; synchronous=FULL, results stored.

It removes a job before it runs it: what a killed worker was running is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from huey import SqliteHuey

from bench.marks import started
from bench.peers import Producer


def job(number: int, begun: int, text: str) -> int:  # noqa: ARG001 - the text is ballast
    started(number, begun)
    return number


def make(url: str) -> tuple[SqliteHuey, Any]:
    huey = SqliteHuey(filename=url.removeprefix("sqlite:///"), fsync=True)
    return huey, huey.task()(job)


@contextmanager
def producer(url: str) -> Iterator[Producer]:
    _, task = make(url)
    yield Producer(task)


def work(url: str) -> None:
    huey, _ = make(url)
    huey.create_consumer(workers=1, periodic=False).start()
    threading.Event().wait()
