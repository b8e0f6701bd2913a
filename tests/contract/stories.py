"""Plays a story, a sequence of calls, on a store, and compares it with the memory store."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from tenure.stores.connect import connect
from tenure.stores.contract import Store
from tenure.testing import ManualClock

__all__ = ["Step", "alone", "check_answers", "play"]

Step: TypeAlias = Callable[[Store, str], Awaitable[Any]] | float
"""A call on a key, or a number of seconds that pass."""

AGES = 10**14  # microseconds: larger numbers are instants or fences


async def play(
    steps: Sequence[Step], places: Sequence[tuple[Store, str]], clock: ManualClock
) -> list[list[Any]]:
    """Take each step in each place in turn; return the answers by place."""
    began = clock.wall()
    answers: list[list[Any]] = [[] for _ in places]
    for step in steps:
        if isinstance(step, float):
            clock.shift(step)
            continue
        for (store, key), story in zip(places, answers, strict=True):
            story.append(_since(began, key, msgspec.to_builtins(await step(store, key))))
    return answers


def _since(began: int, key: str, answer: Any) -> Any:
    """Return an answer with instants as distances from the beginning, and without the key.

    Left out is where stores differ: some count fences for the whole namespace, and `Beat.now` is
    an instant of the clock that a store goes by.
    """
    if isinstance(answer, dict):
        return {
            _since(began, key, name): _since(began, key, part)
            for name, part in answer.items()
            if name not in ("fence", "revision", "now")
        }
    if isinstance(answer, list | tuple):
        return [_since(began, key, part) for part in answer]
    if isinstance(answer, str):
        return answer.replace(key, "KEY")
    if isinstance(answer, int) and answer > AGES:
        return answer - began
    return round(answer, 6) if isinstance(answer, float) else answer


async def alone(steps: Sequence[Step], key: str) -> list[Any]:
    """Return the answers of a memory store that holds nothing else."""
    clock = ManualClock()
    store = connect("memory://", namespace="alone", clock=clock)
    await store.open()
    try:
        [answers] = await play(steps, [(store, key)], clock)
    finally:
        await store.close()
    return answers


def check_answers(steps: Sequence[Step], answers: Sequence[Any], expected: Sequence[Any]) -> None:
    """Fail at the first call with another answer than expected, and say which call it is."""
    calls = [step for step in steps if not isinstance(step, float)]
    for number, (call, answer, promised) in enumerate(zip(calls, answers, expected, strict=True)):
        assert answer == promised, (
            f"call {number} of the story, {_description(call)}, got the answer on the left; "
            "the memory store gives the one on the right"
        )


def _description(call: Callable[..., Any]) -> str:
    """Return the function that made a step, with its arguments."""
    arguments = ", ".join(
        f"{name}={_description(value) if inspect.isfunction(value) else repr(value)}"
        for name, value in inspect.getclosurevars(call).nonlocals.items()
    )
    return f"{call.__qualname__.partition('.')[0]}({arguments})"
