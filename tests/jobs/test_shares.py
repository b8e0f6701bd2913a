"""How a worker divides its slots between queues."""

import logging

import pytest

from tenure import ConfigError


@pytest.fixture
def ran() -> list[str]:
    """The queues of the jobs that ran, in the order of their starts."""
    return []


@pytest.fixture
def serve(app, clock, ran):
    """Declare a task of 0.1 s for each queue, the first one first."""

    def declare(*queues: str):
        def task_of(queue: str):
            async def work() -> None:
                ran.append(queue)
                await clock.sleep(0.1)

            return (
                app.task(work, name=f"work_{queue}")
                if queue == "default"
                else app.task(name=f"work_{queue}", queue=queue)(work)
            )

        return [task_of(queue) for queue in queues]

    return declare


async def backlog(app, task, jobs: int) -> None:
    await app.enqueue_many(task.request() for _ in range(jobs))


@pytest.mark.parametrize("concurrency", [1, 10, 100])
async def test_a_queue_with_few_jobs_is_served_beside_one_with_thousands(
    app, clock, serve, ran, concurrency
):
    bulk, mail = serve("bulk", "mail")
    await backlog(app, bulk, 3000)
    await backlog(app, mail, 3)
    async with app.worker(concurrency=concurrency):
        await clock.advance(60 / concurrency)
    last = max(place for place, queue in enumerate(ran) if queue == "mail")
    assert ran.count("mail") == 3
    assert last < max(10, concurrency)


@pytest.mark.parametrize("concurrency", [1, 8, 50])
async def test_without_weights_all_queues_get_the_same_number_of_starts(
    app, clock, serve, ran, concurrency
):
    for task in serve("a", "b", "c"):
        await backlog(app, task, 400)
    async with app.worker(concurrency=concurrency):
        await clock.advance(60 / concurrency)
    counts = [ran.count(queue) for queue in "abc"]
    assert max(counts) - min(counts) <= max(10, concurrency)
    assert min(counts) >= 150


async def test_a_queue_that_was_empty_gets_its_turn_with_the_next_free_slot(app, clock, serve, ran):
    bulk, mail = serve("bulk", "mail")
    await backlog(app, bulk, 1000)
    async with app.worker(concurrency=4):
        await clock.advance(5)
        before = len(ran)
        await mail.enqueue()
        await clock.advance(1)
    assert "mail" in ran[before : before + 9]


async def test_weights_divide_the_starts(app, clock, serve, ran):
    for task in serve("a", "b"):
        await backlog(app, task, 400)
    async with app.worker(queues={"a": 3, "b": 1}, concurrency=4):
        await clock.advance(10)
    assert ran.count("a") / ran.count("b") == pytest.approx(3, rel=0.1)


async def test_a_list_of_queues_is_strict(app, clock, serve, ran):
    low, high = serve("low", "high")
    await backlog(app, low, 10)
    await backlog(app, high, 30)
    async with app.worker(queues=["high", "low"], concurrency=2):
        await clock.advance(5)
    assert ran == ["high"] * 30 + ["low"] * 10


async def test_a_single_busy_queue_costs_no_further_claims(app, clock, serve, faults, ran):
    bulk, *_ = serve("bulk", *(f"idle{number}" for number in range(20)))
    await backlog(app, bulk, 1000)
    async with app.worker(concurrency=100):
        await clock.advance(2)
    assert len(ran) == 1000
    assert faults.calls["claim"] <= 30


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        (None, "takes jobs from bulk, mail in turn"),
        (["mail", "bulk"], "takes jobs from mail before bulk"),
        ({"mail": 3, "bulk": 1}, "takes jobs from mail (weight 3), bulk (weight 1) in turn"),
    ],
)
async def test_the_log_names_the_order_of_queues(app, clock, serve, caplog, queues, message):
    serve("bulk", "mail")
    caplog.set_level(logging.INFO, "tenure")
    async with app.worker(queues=queues):
        await clock.advance(1)
    assert message in caplog.text


@pytest.mark.parametrize("queues", [{}, {"a": 0}, {"a": 1.5}, {"a": True}, {"": 1}, {"a": 1001}])
async def test_invalid_weights_are_refused(app, queues):
    with pytest.raises(ConfigError, match="queue"):
        app.worker(queues=queues)
