"""The log line of a worker at its start."""

import pytest

from tenure import Tenure
from tenure.app import engine_of
from tenure.runtime.work.summary import intentions


def app_with(*, timers: tuple[str, ...] = (), schedules: tuple[str, ...] = ()) -> Tenure:
    app = Tenure("memory://")
    for name in timers:
        app.timer(every="1h", name=name)(lambda: None)

    async def report() -> None: ...

    for name in schedules:
        app.schedule(app.task(report), every="1h", name=name)
    return app


@pytest.mark.parametrize(
    ("queues", "timers", "schedules", "sentence"),
    [
        (["default"], (), (), "takes jobs from default; it knows the tasks (none)"),
        (["default"], ("b", "a"), (), "runs the timers a, b"),
        (
            ["default", "mail"],
            ("sweep",),
            ("weekly",),
            (
                "takes jobs from default before mail; it knows the tasks report; "
                "it runs the timers sweep; it keeps the schedules weekly"
            ),
        ),
        ([], ("evil\x1b[2J",), (), "runs the timers evil\\x1b[2J"),
    ],
)
def test_a_worker_says_what_it_is_there_for(queues, timers, schedules, sentence):
    app = app_with(timers=timers, schedules=schedules)
    registry = engine_of(app).registry
    assert intentions(queues, (), registry.handlers, [*registry.plans.values()]) == sentence
