"""When changes are announced through PostgreSQL, and how they are written down."""

import asyncio
from typing import Any

import pytest

from tenure.core.leases import Topic
from tenure.errors import StoreUnavailable
from tenure.stores.postgres.notifier import Notifier, channel_of, kind_in, payloads, topics_in
from tests.unit.virtual_time import in_virtual_time, now, settle

PAUSE, URGENT_PAUSE, AT_ONCE = 0.02, 0.002, 5


class Sent:
    """Stands for the server: writes down what is sent, and when."""

    def __init__(self) -> None:
        self.payloads: list[tuple[float, str]] = []
        self.given_up = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.error: Exception | None = None

    async def __call__(self, channel: str, payloads: list[str]) -> None:
        assert channel == channel_of("space")
        self.payloads += [(round(now(), 6), payload) for payload in payloads or ["nothing"]]
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self.error is not None:
            raise self.error

    @property
    def instants(self) -> list[float]:
        return [instant for instant, _ in self.payloads]

    @property
    def names(self) -> list[list[str]]:
        return [[name for _, name in topics_in(text, "space")] for _, text in self.payloads]


def job(name: object) -> list[Topic]:
    return [("job", str(name))]


def queue(name: object) -> list[Topic]:
    return [("queue", str(name))]


async def tell_many(notifier: Notifier, *names: object) -> None:
    for name in names:
        notifier.tell(job(name))
        await settle()


@in_virtual_time
async def test_a_few_changes_are_sent_at_once_and_later_ones_together_after_a_pause():
    sent = Sent()
    notifier = Notifier("space", sent)
    await tell_many(notifier, *range(9))
    assert sent.names == [[str(number)] for number in range(AT_ONCE)]
    await asyncio.sleep(1)
    assert sent.instants == [0] * AT_ONCE + [PAUSE]
    assert sent.names[AT_ONCE:] == [["5", "6", "7", "8"]]


@in_virtual_time
async def test_after_a_burst_each_pause_allows_one_more():
    sent = Sent()
    notifier = Notifier("space", sent)
    await tell_many(notifier, *range(AT_ONCE))
    notifier.tell(job("later"))
    await asyncio.sleep(PAUSE)
    await settle()
    notifier.tell(job("last"))
    await asyncio.sleep(1)
    assert sent.instants == [0] * AT_ONCE + [PAUSE, 2 * PAUSE]


@in_virtual_time
async def test_a_quiet_time_allows_a_few_at_once_again_but_no_more():
    sent = Sent()
    notifier = Notifier("space", sent)
    await tell_many(notifier, *range(AT_ONCE))
    await asyncio.sleep(60)
    await tell_many(notifier, *range(2 * AT_ONCE))
    assert sent.instants == [0] * AT_ONCE + [60] * AT_ONCE
    await notifier.close()


@in_virtual_time
async def test_work_for_a_worker_waits_a_shorter_pause_and_takes_along_what_waits():
    sent = Sent()
    notifier = Notifier("space", sent)
    await tell_many(notifier, *range(AT_ONCE), "waits")
    notifier.tell([*job("another"), *queue("default")])
    await asyncio.sleep(1)
    assert sent.instants[AT_ONCE:] == [URGENT_PAUSE, URGENT_PAUSE]
    assert sent.names[AT_ONCE:] == [["waits", "another"], ["default"]]


@in_virtual_time
async def test_work_is_as_urgent_if_a_change_that_is_not_follows():
    sent = Sent()
    notifier = Notifier("space", sent)
    await tell_many(notifier, *range(AT_ONCE))
    notifier.tell(queue("default"))
    notifier.tell(job("another"))
    await asyncio.sleep(1)
    assert sent.instants[AT_ONCE:] == [URGENT_PAUSE, URGENT_PAUSE]


@in_virtual_time
async def test_the_first_pieces_of_work_are_sent_at_once():
    sent = Sent()
    notifier = Notifier("space", sent)
    for number in range(AT_ONCE):
        notifier.tell(queue(number))
        await settle()
    assert sent.instants == [0] * AT_ONCE


@in_virtual_time
async def test_urgent_changes_do_not_make_others_wait_longer_than_a_pause():
    sent = Sent()
    notifier = Notifier("space", sent)
    await tell_many(notifier, *range(AT_ONCE))
    for number in range(8):
        notifier.tell(queue(number))
        await asyncio.sleep(URGENT_PAUSE)
        await settle()
    told_at = now()
    notifier.tell(job("last"))
    await asyncio.sleep(1)
    assert sent.names[-1] == ["last"]
    assert told_at < sent.instants[-1] <= told_at + PAUSE


@in_virtual_time
async def test_changes_during_a_send_go_out_together_after_it():
    sent = Sent()
    notifier = Notifier("space", sent)
    sent.answers.clear()
    await tell_many(notifier, *range(4))
    assert sent.names == [["0"]]
    sent.answers.set()
    await settle()
    assert sent.names == [["0"], ["1", "2", "3"]]
    await asyncio.sleep(1)
    assert len(sent.names) == 2


@in_virtual_time
async def test_no_change_sends_nothing():
    sent = Sent()
    notifier = Notifier("space", sent)
    notifier.tell([])
    await asyncio.sleep(1)
    await notifier.close()
    assert sent.payloads == []


@in_virtual_time
async def test_an_announcement_that_fails_is_dropped_and_the_next_is_sent():
    sent = Sent()
    notifier = Notifier("space", sent)
    sent.error = StoreUnavailable("away")
    await tell_many(notifier, "first")
    sent.error = None
    await tell_many(notifier, "second")
    await notifier.close()
    assert sent.names == [["first"], ["second"]]


# Closing.


@in_virtual_time
async def test_closing_sends_what_waits_and_nothing_is_sent_later():
    sent = Sent()
    notifier = Notifier("space", sent)
    await tell_many(notifier, *range(AT_ONCE), "waits")
    await notifier.close()
    assert sent.names[AT_ONCE:] == [["waits"]]
    assert now() == 0
    await asyncio.sleep(1)
    assert len(sent.payloads) == AT_ONCE + 1


@pytest.mark.parametrize("earlier", [0, AT_ONCE])
@in_virtual_time
async def test_closing_waits_for_a_send_and_then_sends_the_rest(earlier: int):
    sent = Sent()
    notifier = Notifier("space", sent)
    await tell_many(notifier, *range(earlier))
    await asyncio.sleep(PAUSE)  # credit for one more
    sent.answers.clear()
    await tell_many(notifier, "under way", "waits")
    closing = asyncio.create_task(notifier.close())
    await asyncio.sleep(0.5)
    assert sent.names[earlier:] == [["under way"]]
    sent.answers.set()
    await closing
    assert sent.names[earlier:] == [["under way"], ["waits"]]
    await asyncio.sleep(1)
    assert len(sent.names) == earlier + 2


@in_virtual_time
async def test_closing_gives_up_on_a_server_that_does_not_answer():
    sent = Sent()
    notifier = Notifier("space", sent)
    sent.answers.clear()
    await tell_many(notifier, "under way", "waits")
    await notifier.close()
    assert now() == 1
    assert (sent.names, sent.given_up) == ([["under way"]], 1)


@in_virtual_time
async def test_closing_gives_up_on_the_last_send_as_well():
    sent = Sent()
    notifier = Notifier("space", sent)
    await tell_many(notifier, *range(AT_ONCE), "waits")
    sent.answers.clear()
    await notifier.close()
    assert now() == 1
    assert (sent.names[AT_ONCE:], sent.given_up) == ([["waits"]], 1)


# Payloads.


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ([], []),
        ([("job", "a"), ("queue", "b"), ("job", "c")], ["jobs space a\nc", "queues space b"]),
        ([("job", "a\nb"), ("job", "c")], ["job space a\nb", "jobs space c"]),
        ([("job", str(n)) for n in range(65)], ["* space job"]),
        (
            [("job", str(n)) for n in range(64)],
            ["jobs space " + "\n".join(str(n) for n in range(64))],
        ),
        (
            [*(("job", str(n)) for n in range(65)), ("queue", "q")],
            ["* space job", "queues space q"],
        ),
    ],
)
def test_topics_of_a_kind_share_a_payload(topics: Any, expected: list[str]):
    assert payloads("space", topics) == expected


@pytest.mark.parametrize(("surplus", "number"), [(0, 1), (1, 2)])
def test_a_payload_is_filled_up_to_its_limit(surplus: int, number: int):
    head = len("jobs space ")
    # Each name counts with its separator.
    names = ["é" * 1000, "b" * 3000, "c" * (7000 - head - 2001 - 3001 - 1 + surplus)]
    texts = payloads("space", [("job", name) for name in names])
    assert len(texts) == number
    assert [name for text in texts for _, name in topics_in(text, "space")] == names


def test_many_long_names_fill_several_payloads_in_order():
    names = [f"{number:02}" + "x" * 2998 for number in range(7)]
    texts = payloads("space", [("job", name) for name in names])
    assert [len(topics_in(text, "space")) for text in texts] == [2, 2, 2, 1]
    assert [name for text in texts for _, name in topics_in(text, "space")] == names


@pytest.mark.parametrize(
    ("payload", "kind", "topics"),
    [
        ("* space job", "job", []),
        ("* other job", None, []),
        ("job space a\nb", None, [("job", "a\nb")]),
        ("jobs space a\nb", None, [("job", "a"), ("job", "b")]),
        ("jobs other a\nb", None, []),
        ("jobs spaces a", None, []),
    ],
)
def test_payloads_are_read_for_one_namespace(payload: str, kind: str | None, topics: Any):
    assert kind_in(payload, "space") == kind
    if kind is None:
        assert topics_in(payload, "space") == topics


def test_each_namespace_has_its_channel():
    assert channel_of("one") != channel_of("other")
    assert len(channel_of("x" * 200)) < 64  # PostgreSQL cuts longer names
