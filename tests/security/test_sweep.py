"""Spoils every field of every stored record: neighbours go on, and the doctor names the damage.

The live store says which fields there are, so that one that is added later is spoiled as well. In a
round each mutation has a record of its own. A round that does harm is split until the mutations are
found that do.
"""

import asyncio
import logging
import os
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner

from tenure.cli.commands import tenure as command
from tenure.core.clock import SystemClock
from tenure.core.jobs.states import STATES
from tenure.runtime.timers.stored_schedules import read_schedules
from tenure.stores import damage
from tenure.stores.connect import connect
from tests.rig.sizes import SIZE
from tests.security.damage.ground import Ground, ground_of
from tests.security.damage.neighbours import check
from tests.security.damage.places import Field, Spoiler
from tests.security.damage.scene import Scene

COPIES = 40
SEED = int(os.environ.get("TENURE_TEST_SEED", "7"))
JUNK = 1 if SIZE.name == "short" else 1000
"""Values for each field."""
_TRIES = 2
"""Records that a mutation is tried on."""

# There is one of each, which all others need.
ALONE = {"fence", "tenure_space", "tenure_machine", "space"}

# A trace that another machine has left keeps this one out, and so does one of this machine from the
# future: such a lie is believed, see sqlite/machines.py.
BELIEVED = {"tenure_machine.id", "tenure_machine.boot"}

# A record with another name is another one, and one with another time may have ended.
ENDS = re.compile(
    r"\.(namespace|id|key|name|number|more|type|score|boot_id|renewed|ttl|expires|life|dead)$"
    r"|^(head|places|info|patience):"
)


@dataclass(frozen=True)
class Mutation:
    """A field of one kind of record, and what is put there."""

    field: Field
    junk: Any

    def __repr__(self) -> str:
        return f"{self.field} = {self.junk!r}"[:200]


@dataclass
class Round:
    """What came of spoiling a scene."""

    problems: list[str] = field(default_factory=list)
    left: list[Mutation] = field(default_factory=list)
    """Mutations that found no record of their kind."""


@pytest.fixture(scope="module", params=["sqlite", "redis", "postgres"])
def ground(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    yield from ground_of(request, request.param, tmp_path_factory.mktemp("sweep"))


@pytest.mark.timeout(3600)
def test_a_spoiled_record_harms_no_neighbour_and_is_named(ground: Ground):
    chosen = mutations(ground)
    waiting, harmful = shares(chosen), []
    while waiting:
        share = waiting.pop(0)
        done = play(ground, share)
        if done.problems:
            harmful += culprits(ground, share, done.problems)
        if done.left:
            waiting.append(done.left)
    assert not harmful, f"{len(harmful)} of {len(chosen)}:\n" + "\n".join(harmful)


def mutations(ground: Ground) -> list[Mutation]:
    with ground.scene(3) as (_, _, _, spoiler):
        fields = [field for field in spoiler.fields() if "format" not in field.group]
        fields = [field for field in fields if str(field) not in BELIEVED]
    chance = random.Random(SEED)
    return [
        Mutation(field, junk)
        for field in fields
        for junk in chance.sample(field.junk, min(JUNK, len(field.junk)))
    ]


def shares(chosen: list[Mutation]) -> list[list[Mutation]]:
    """Share mutations out so that no round spoils more records of a group than there are."""
    by_group: dict[str, list[Mutation]] = defaultdict(list)
    for mutation in chosen:
        by_group[mutation.field.group].append(mutation)
    rounds: list[list[Mutation]] = []
    for group, every in by_group.items():
        most = 1 if group in ALONE else COPIES
        for at in range(0, len(every), most):
            if len(rounds) <= at // most:
                rounds.append([])
            rounds[at // most] += every[at : at + most]
    return rounds


def play(ground: Ground, chosen: list[Mutation]) -> Round:
    """Spoil a scene, and see what neighbours and operators make of it."""
    done = Round()
    with ground.scene(COPIES) as (url, namespace, scene, spoiler):
        before = asyncio.run(shown(url, namespace))
        spoiled = spoil(spoiler, chosen, done.left)
        done.problems += unnamed(url, namespace, before, spoiled)
        with Complaints() as logged:
            done.problems += asyncio.run(neighbours(url, namespace, scene))
            done.problems += commands(url, namespace, scene)
        done.problems += [f"logged twice: {line}" for line in {*logged} if logged.count(line) > 1]
    return done


def spoil(spoiler: Spoiler, chosen: list[Mutation], left: list[Mutation]) -> dict[str, Mutation]:
    """Carry mutations out, each on a record of its own; return them by what those were."""
    taken: dict[str, int] = defaultdict(int)
    groups = {mutation.field.group for mutation in chosen}
    # The pause of all timers comes last: there is only one.
    rows = {group: sorted(spoiler.rows(group), key=_is_alone) for group in groups}
    done: dict[str, Mutation] = {}
    for mutation in chosen:
        group = rows[mutation.field.group]
        at = taken[mutation.field.group]
        if at >= len(group):
            left += [mutation] if group else []
            continue
        # A document of one record may lack what those of others have.
        for place in range(at, min(at + _TRIES, len(group))):
            if spoiler.spoil(mutation.field, group[place], mutation.junk):
                taken[mutation.field.group] = place + 1
                done[repr(group[place])] = mutation
                break
    return done


def _is_alone(row: Any) -> bool:
    return "bad" not in repr(row)


def unnamed(
    url: str, namespace: str, before: set[str], spoiled: dict[str, Mutation]
) -> Iterator[str]:
    """Tell of records that lists do not show any more, and that the doctor does not name."""
    report = invoked("doctor", url=url, namespace=namespace).output
    for name in sorted(before - asyncio.run(shown(url, namespace))):
        causes = [mutation for row, mutation in spoiled.items() if name in row]
        if (
            name not in report
            and causes
            and not any(ENDS.search(str(mutation.field)) for mutation in causes)
        ):
            yield f"neither shown nor named: {name}"


async def shown(url: str, namespace: str) -> set[str]:
    """Return the names of all that lists show."""
    store = connect(url, namespace=namespace, clock=SystemClock())
    await store.open()
    try:
        names = {lease.key for lease in await store.leases.find(limit=10_000)}
        names |= {replica.id for replica in await store.jobs.replicas()}
        names |= {schedule.name for schedule in (await read_schedules(store)).all}
        for state in STATES:
            names |= {job.id for job in (await store.jobs.find(state=state, limit=1000)).jobs}
        return names
    finally:
        await store.close()


async def neighbours(url: str, namespace: str, scene: Scene) -> list[str]:
    """Have neighbours do all they do, twice: what was read once may be written by now."""
    store = connect(url, namespace=namespace, clock=SystemClock())
    await store.open()
    try:
        return await check(store, scene) or await check(store, scene)
    finally:
        await store.close()


def commands(url: str, namespace: str, scene: Scene) -> Iterator[str]:
    """Tell of commands that die, or give up, because of a record."""
    for words in (
        ("queues", "ls"),
        ("doctor",),
        ("jobs", "ls"),
        ("jobs", "show", scene.waiting[0]),
        ("jobs", "show", scene.running[0].id),
        ("locks", "ls"),
        ("locks", "show", "bad-0-crowd"),
        ("replicas", "ls"),
        ("timers", "ls"),
    ):
        result = invoked(*words, url=url, namespace=namespace)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            yield f"tenure {' '.join(words)}: {result.exception!r}"[:600]
        elif result.exit_code and words[1:2] != ("show",):
            yield f"tenure {' '.join(words)}: {result.output}"[:600]


def invoked(*words: str, url: str, namespace: str) -> Any:
    place = ("--json", "--url", url, "--namespace", namespace)
    return CliRunner().invoke(command, [*words, *place])


class Complaints(logging.Handler):
    """Collects what the log says about damaged records."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "tenure" and "Cannot use" in record.getMessage():
            self._lines.append(record.getMessage())

    def __enter__(self) -> list[str]:
        damage._logged.clear()
        logging.getLogger("tenure").addHandler(self)
        return self._lines

    def __exit__(self, *_: object) -> None:
        logging.getLogger("tenure").removeHandler(self)


def culprits(ground: Ground, chosen: list[Mutation], problems: list[str]) -> list[str]:
    """Return the mutations that do harm on their own, with the harm."""
    if len(chosen) == 1:
        return [f"{chosen[0]!r}\n    " + "\n    ".join(problems)]
    half = len(chosen) // 2
    harmful = []
    for part in (chosen[:half], chosen[half:]):
        if harm := play(ground, part).problems:
            harmful += culprits(ground, part, harm)
    return harmful or [f"{problems} only together: {chosen!r}"[:2000]]
