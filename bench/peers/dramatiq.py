"""Dramatiq on Redis: 8 threads, its default, but a prefetch of 1,000."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112 - that is its name

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from bench.marks import started
from bench.peers import Producer

RESULTS = False


def job(number: int, begun: int, text: str) -> int:  # noqa: ARG001 - the text is ballast
    started(number, begun)
    return number


def make(url: str) -> tuple[RedisBroker, dramatiq.Actor]:
    broker = RedisBroker(url=url)
    options = {}
    if RESULTS:
        broker.add_middleware(Results(backend=RedisBackend(url=url)))
        options["store_results"] = True
    return broker, dramatiq.actor(job, broker=broker, **options)


@contextmanager
def producer(url: str) -> Iterator[Producer]:
    _, actor = make(url)
    yield Producer(actor.send)


def work(url: str) -> None:
    broker, _ = make(url)
    dramatiq.Worker(broker, worker_threads=8).start()
    threading.Event().wait()
