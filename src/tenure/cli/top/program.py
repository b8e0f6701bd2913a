"""The loop of `tenure top`: reads the store every so often, and answers to keys at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

from tenure.app import Tenure, engine_of
from tenure.cli.target import explained
from tenure.cli.top.actions import perform
from tenure.cli.top.data import MemoryLook, Picture, read, read_history, read_job
from tenure.cli.top.details import Story, lines_about
from tenure.cli.top.grid import Row
from tenure.cli.top.keys import Keyboard
from tenure.cli.top.panes import PANES, rows_of
from tenure.cli.top.state import JOBS, TIMERS, Action, State, press
from tenure.cli.top.terminal import Terminal
from tenure.cli.top.view import Look, frame
from tenure.errors import StoreUnavailable, TenureError

__all__ = ["Program"]

T = TypeVar("T")

_PATIENCE: Final = 10.0
_REDRAW: Final = 1.0
"""How often the age of an old picture grows on the screen."""
_ESCAPE: Final = 0.05
"""How long the rest of a key's sequence may take. The escape key alone has no rest."""


class Program:
    """Shows one store until the user quits."""

    def __init__(self, app: Tenure, terminal: Terminal, title: str, every: float) -> None:
        self._app = app
        self._terminal = terminal
        self._title = title
        self._every = every
        self._clock = engine_of(app).store.clock
        self._keyboard = Keyboard()
        self._state = State()
        self._picture: Picture | None = None
        self._memory = MemoryLook()
        self._read_at = 0.0
        self._trouble = ""
        self._story: Story = None
        self._rows: list[list[Row]] = [[] for _ in PANES]
        self._is_over = False
        self._changed = asyncio.Event()
        self._to_read = asyncio.Event()
        self._action: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Return when the user quits."""
        loop = asyncio.get_running_loop()
        answers = {
            signal.SIGWINCH: self._changed.set,
            signal.SIGTSTP: self._stop,
            signal.SIGTERM: self._end,
            signal.SIGHUP: self._end,
        }
        for number, answer in answers.items():
            loop.add_signal_handler(number, answer)
        loop.add_reader(self._terminal.input, self._keys)
        reader = asyncio.create_task(self._keep_reading())
        reader.add_done_callback(lambda _: self._changed.set())
        try:
            with self._terminal.taken():
                await self._show(reader)
        finally:
            loop.remove_reader(self._terminal.input)
            for number in answers:
                loop.remove_signal_handler(number)
            await _ended(reader, *([self._action] if self._action else []))

    async def _show(self, reader: asyncio.Task[None]) -> None:
        while not self._is_over:
            if reader.done():
                reader.result()  # raises what nobody has foreseen
            self._changed.clear()
            self._draw()
            await _within(self._changed.wait(), _REDRAW)

    def _draw(self) -> None:
        size = self._terminal.size
        self._list()
        details = []
        state = self._state
        if self._opened is not None and self._picture is not None:
            details = lines_about(*self._opened, self._picture, self._story, size[0])
            # So that a key back has an effect at once.
            last = max(0, len(details) - (size[1] - 2))
            state = self._state = replace(state, scroll=min(state.scroll, last))
        age = self._clock.boot() - self._read_at
        look = Look(self._title, self._picture, self._trouble, age, details)
        self._terminal.draw(frame(look, state, self._rows, size))

    def _list(self) -> None:
        if self._picture is not None:
            text = self._state.filter
            self._rows = [rows_of(pane, self._picture, text) for pane in PANES]

    def _keys(self) -> None:
        data = self._terminal.read()
        if not data:
            self._end()  # the terminal was closed
            return
        self._press(*self._keyboard.feed(data))
        if self._keyboard.is_pending:
            loop = asyncio.get_running_loop()
            loop.call_later(_ESCAPE, lambda: self._press(*self._keyboard.flush()))

    def _press(self, *keys: str) -> None:
        for key in keys:
            before = self._state
            step = press(before, key, self._rows)
            self._state = step.state
            self._is_over |= step.is_end
            if step.action is not None:
                self._begin(step.action)
            if step.state.mode == "details" and before.mode != "details":
                self._story = None
                self._to_read.set()
            self._list()
        self._changed.set()

    def _begin(self, action: Action) -> None:
        if self._action is not None and not self._action.done():
            self._say("The store has not answered to the last action yet.")
            return
        self._action = asyncio.create_task(self._perform(action))

    async def _perform(self, action: Action) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                self._say(await perform(self._app, action))
        except TimeoutError:
            self._say(
                f"The store did not answer within {_PATIENCE:g} s: look before you repeat it."
            )
        except TenureError as error:
            self._say(explained(error))
        self._to_read.set()

    def _say(self, message: str) -> None:
        self._state = replace(self._state, message=message)
        self._changed.set()

    async def _keep_reading(self) -> None:
        while True:
            self._to_read.clear()
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self._read()
            except TimeoutError:
                self._trouble = f"It did not answer within {_PATIENCE:g} s."
            except TenureError as error:
                self._trouble = explained(error)
            self._changed.set()
            await _within(self._to_read.wait(), self._every)

    async def _read(self) -> None:
        picture = await read(self._app, self._memory)
        opened = self._opened
        story = await self._read_story(*opened) if opened is not None else None
        self._picture, self._read_at, self._trouble = picture, self._clock.boot(), ""
        if opened == self._opened:  # keys go on while the store answers
            self._story = story

    @property
    def _opened(self) -> tuple[int, str] | None:
        """The list and the name of what the user looks into."""
        state = self._state
        return (state.pane, state.selected[state.pane].key) if state.mode == "details" else None

    async def _read_story(self, pane: int, name: str) -> Story:
        """Read what was opened; keep what was known of it once it has gone."""
        try:
            if pane == JOBS:
                return await read_job(self._app, name)
            if pane == TIMERS:
                return await read_history(self._app, name)
        except StoreUnavailable:
            raise
        except TenureError as error:
            self._say(explained(error))
            return self._story
        return None

    def _stop(self) -> None:
        """Be stopped by Ctrl-Z, with the terminal as it was; go on after `fg`."""
        self._terminal.give_back()
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        loop.add_signal_handler(signal.SIGTSTP, self._stop)
        self._terminal.take()
        self._to_read.set()
        self._changed.set()

    def _end(self) -> None:
        self._is_over = True
        self._changed.set()


async def _within(work: Coroutine[Any, Any, T], seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        pass


async def _ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    waiting: Awaitable[Any] = asyncio.gather(*tasks, return_exceptions=True)
    await waiting
