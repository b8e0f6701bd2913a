"""Each `with` block on a shared object has an entry of its own, in whichever order Python looks."""

import threading
from contextlib import ExitStack
from typing import Any

import pytest

from tenure import ConfigError
from tenure.runtime.leases import entries
from tenure.runtime.leases.entries import EnteredByHand, Entry, entry_methods
from tenure.runtime.leases.owners import current_caller


class Shared:
    """Numbers its blocks."""

    def __init__(self) -> None:
        self.entered = 0
        self.left: list[int | None] = []
        self.paired: list[bool] = []

    __enter__, __exit__ = entry_methods("_enter", "_leave")

    def _enter(self, entry: Entry[int]) -> int:
        self.entered += 1
        entry.hold = self.entered
        self.paired.append(entry.is_paired)
        return self.entered

    def _leave(self, entry: Entry[int], *_: object) -> None:
        self.left.append(entry.hold)


def test_blocks_that_end_in_any_order_know_their_own_entry():
    shared = Shared()

    def block() -> Any:
        with shared as number:
            yield number

    blocks = [block() for _ in range(3)]
    assert [next(generator) for generator in blocks] == [1, 2, 3]
    for generator in (blocks[1], blocks[2], blocks[0]):
        assert next(generator, None) is None
    assert shared.left == [2, 3, 1]


def test_nested_blocks_and_an_exit_stack():
    shared, other = Shared(), Shared()
    with ExitStack() as stack:
        stack.enter_context(shared)
        with shared, other, shared:
            assert shared.entered == 3
        assert shared.left == [3, 2]
    assert (shared.left, other.left) == ([3, 2, 1], [1])
    assert all(shared.paired)


@pytest.mark.parametrize(
    ("on_class", "leave_first"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_look_ups_in_the_order_of_a_with_statement_or_a_stack_get_one_entry(
    on_class: bool, leave_first: bool, monkeypatch: pytest.MonkeyPatch
):
    shared = Shared()
    place = Shared if on_class else shared
    arguments = [shared] if on_class else []
    with monkeypatch.context() as patched:
        patched.setattr(entries, "_WITH_LOOKS_UP_LEAVING_FIRST", leave_first)
        if leave_first and not on_class:
            leave, enter = place.__exit__, place.__enter__
        else:
            enter, leave = place.__enter__, place.__exit__
    assert enter(*arguments) == 1
    with shared:
        pass
    leave(*arguments, None, None, None)
    assert shared.left == [2, 1]
    assert shared.paired == [True, True]


def test_a_direct_call_is_known_to_have_no_counterpart():
    shared = Shared()
    shared.__enter__()
    shared.__exit__(None, None, None)
    assert shared.paired == [False]
    assert shared.left == [None]
    assert hasattr(shared, "__enter__")
    with shared:
        pass
    assert shared.left == [None, 2]


def test_a_block_that_another_thread_leaves_at_the_same_time_is_left_once():
    class Raced(list[Any]):
        """Another thread removes the entry just before this one does."""

        def remove(self, entry: Any) -> None:
            super().remove(entry)
            super().remove(entry)

    caller = current_caller()
    by_hand: EnteredByHand[int] = EnteredByHand()
    by_hand.add(caller, 1)
    by_hand._entered = Raced(by_hand._entered)
    with pytest.raises(ConfigError, match="0 such blocks are open"):
        by_hand.take(caller, "shared")


def test_look_ups_of_two_threads_do_not_mix(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(entries, "_WITH_LOOKS_UP_LEAVING_FIRST", False)
    shared = Shared()
    enter = shared.__enter__
    other = threading.Thread(target=lambda: shared.__exit__(None, None, None))
    other.start()
    other.join()
    leave = shared.__exit__
    enter()
    leave(None, None, None)
    assert shared.left == [None, 1]
