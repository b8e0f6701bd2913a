"""Interrupts at each line of a synchronous call.

Tasks that run in a thread later take over its context. An owner that stayed set there would
make all of them one owner, and each would be told that it waits for itself.
"""

import asyncio
import sys
from contextlib import suppress
from types import FrameType
from typing import Any, Self

import pytest

import tenure
from tenure import blocking
from tenure.blocking.portal import Portal


class InterruptAt:
    """Raises KeyboardInterrupt before the given line event of a function, counted from zero."""

    def __init__(self, function: Any, line: int) -> None:
        self._code = function.__code__
        self._left = line

    def __enter__(self) -> Self:
        self._outer = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._outer)

    @property
    def was_reached(self) -> bool:
        return self._left < 0

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not self._code:
            return None
        if event == "line":
            self._left -= 1
            if self._left == -1:
                raise KeyboardInterrupt
        return self._trace


def test_an_interrupt_at_any_line_makes_no_common_owner_of_later_tasks(namespace: str):
    with blocking.Tenure(f"memory://{namespace}") as app:
        lines = 0
        while True:
            with suppress(KeyboardInterrupt), InterruptAt(Portal._post, lines) as interrupt:
                app.once("reports", lambda: None)
            if not interrupt.was_reached:
                break
            lines += 1
            asyncio.run(contend())
    assert lines > 3, "the function was not interrupted at each of its lines"


async def contend() -> None:
    async with tenure.Tenure("memory://") as app:

        async def section() -> None:
            async with app.lock("shared"):
                await asyncio.sleep(0)

        await asyncio.gather(section(), section())


# An interrupt may come before anything is done with the coroutine; Python warns of that.
@pytest.mark.filterwarnings("ignore:coroutine 'Tenure.open' was never awaited")
@pytest.mark.parametrize("function", [blocking.Tenure.open, Portal.call])
def test_an_app_whose_opening_was_interrupted_at_any_line_can_be_opened(
    function: Any, namespace: str
):
    line, was_reached = 0, True
    while was_reached:
        app = blocking.Tenure(f"memory://{namespace}")
        interrupt = InterruptAt(function, line)
        with suppress(KeyboardInterrupt), interrupt:
            app.open()
        was_reached = interrupt.was_reached
        if was_reached:
            with app:
                assert app.locks() == []
        else:
            app.close()
        line += 1
    assert line > 4, "the function was not interrupted at each of its lines"


@pytest.mark.parametrize("line", [0, 1])
def test_an_interrupt_is_raised_where_the_test_says(line: int):
    seen: list[int] = []

    def function() -> None:
        seen.append(0)
        seen.append(1)

    with pytest.raises(KeyboardInterrupt), InterruptAt(function, line) as interrupt:
        function()
    assert interrupt.was_reached
    assert len(seen) == line
