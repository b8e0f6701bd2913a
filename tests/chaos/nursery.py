"""Makes processes quickly: python -m tests.chaos.nursery, one order per line of its input.

It has imported everything and forks: a process that lives in 10 ms can be killed by the thousand.
It is the parent, so it also passes signals on: a pid that it has not reaped cannot be another's.
"""

import asyncio
import faulthandler
import json
import logging
import os
import selectors
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from tenure.stores import postgres, redis, sqlite
from tests.chaos import holders, labour
from tests.chaos.roles import Order
from tests.rig.launch import die_with
from tests.rig.stdio import tell

_PIECE = 65536
# What a process imports when it first meets its store, it would import again and again.
_IMPORTED = (postgres, redis, sqlite)


class Nursery:
    """The processes that live, by their names."""

    def __init__(self) -> None:
        self._living: dict[int, str] = {}
        self._pids: dict[str, int] = {}

    def obey(self, order: dict[str, Any]) -> None:
        """Start a process, or send a signal to one if it lives."""
        name = order["by"]
        if "signal" not in order:
            self._start(name, order)
        elif name in self._pids:
            os.kill(self._pids[name], order["signal"])

    def reap(self) -> None:
        """Tell who has ended."""
        while self._living:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            name = self._living.pop(pid)
            del self._pids[name]
            tell("ended", by=name, code=os.waitstatus_to_exitcode(status))

    def _start(self, name: str, order: dict[str, Any]) -> None:
        parent = os.getpid()
        # A process that is told to end before it listens hears it when it does.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        pid = os.fork()
        if pid == 0:
            _live(order, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._living[pid], self._pids[name] = name, pid
        tell("born", by=name, pid=pid)


def _live(order: dict[str, Any], parent: int) -> None:
    """Be the process that was ordered; never returns."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        die_with(parent)
        log = os.open(Path(order["folder"]) / f"{order['by']}.log", os.O_WRONLY | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        os.setsid()
        play(order)
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it belongs into the log of this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def play(order: dict[str, Any]) -> None:
    """Be the process that was ordered, until it is told to end."""
    # Before anything else: a process that is told to end while it starts has nothing to finish.
    # Not by an exception, which may come between a lock and the block that releases it: the cleanup
    # would wait for that lock.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    faulthandler.register(signal.SIGUSR1)  # shows where it is, if it does not end
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
    logging.getLogger("tenure").setLevel(logging.DEBUG)
    decoded = msgspec.convert(order, Order)
    mains = {"holder": holders.main, "worker": labour.work, "producer": labour.produce}
    asyncio.run(mains[decoded.role](decoded))


def main() -> None:
    """Obey until the line for orders is closed; all children end with this process."""
    news, news_for_us = os.pipe()
    os.set_blocking(news_for_us, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(news_for_us)
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
    selector.register(news, selectors.EVENT_READ)
    nursery = Nursery()
    tell("ready")
    rest = b""
    while True:
        for key, _ in selector.select():
            piece = os.read(key.fd, _PIECE)
            if key.fd == news:
                nursery.reap()
            elif not piece:
                return
            else:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    nursery.obey(json.loads(line))


if __name__ == "__main__":
    main()
