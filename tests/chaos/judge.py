"""Judges a storm, from the ledgers outside the store and from the store itself.

The rules for stays in locks and for effects are those of the simulation (`tests.sim`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from tenure import Job, Tenure
from tests.chaos.labour import read_result
from tests.chaos.tally import Tally
from tests.sim.checks.critical_sections import check_sections, sections_of
from tests.sim.checks.effects import check_effects
from tests.sim.history import Entry

_SHOWN = 5
# Seconds. Clocks are set by more, and no job is accepted that late.
_LEAST_STEP = 10.0
# Clocks are set back by more. Ticks that waited while a clock was set ahead are behind by less.
_LEAST_STEP_BACK = 600.0
_LOSSES = ("noticed loss", "notified of loss")


def judge_locks(entries: Sequence[Entry], tally: Tally, *, clock_was_set: bool = False) -> None:
    """Look at both layers: who was inside, and what came of it in the sink.

    If the clock of the store was set, leases may have ended early, and holders may have overlapped
    until the next renewal: then only fences and effects are judged.
    """
    if clock_was_set:
        _violate(tally, "fences", _falling_fences(entries))
    else:
        _violate(tally, "exclusion", check_sections(entries))
    stays = [entry for entry in entries if entry.what == "entered"]
    tally.add("grants", len(stays))
    tally.add("expiries while held", _count(entries, *_LOSSES))
    _count_repeated_fences(stays, tally)
    _count_stale_holders(entries, tally)


def judge_effects(entries: Sequence[Entry], tally: Tally) -> None:
    """No effect of an older fence after one of a newer, none refused that was good."""
    effects = [entry for entry in entries if entry.what == "effect"]
    tally.add("stale writes refused", sum(not effect.ok for effect in effects))
    tally.add("stale transactions refused", _count(entries, "refused"))
    tally.add("stale ends refused", _count(entries, "AttemptLost"))
    highest: dict[str, int] = defaultdict(int)
    for effect in effects:
        if effect.ok:
            tally.add("stale effects accepted", effect.fence < highest[effect.key])
            highest[effect.key] = max(highest[effect.key], effect.fence)
    _violate(tally, "effects", check_effects(_with_grants(entries)))
    tally.expect_none("stale effects accepted")


def judge_ticks(entries: Sequence[Entry], tally: Tally) -> None:
    """Each tick of the timer that all workers have ran once at most."""
    ticks = Counter(entry.tick for entry in entries if entry.what == "chimed")
    tally.add("ticks", len(ticks))
    tally.add("ticks run twice", sum(number - 1 for number in ticks.values()))
    tally.expect_none("ticks run twice")


def judge_clock_steps(entries: Iterable[Entry], tally: Tally) -> None:
    """Count the steps that producers saw: the store's instants of their jobs jump."""
    leads = [entry.now / 1e6 - entry.at for entry in entries if entry.what == "accepted"]
    for before, after in pairwise(leads):
        tally.add("clock steps ahead", after - before > _LEAST_STEP)
        tally.add("clock steps back", before - after > _LEAST_STEP)


def judge_order_of_ticks(entries: Iterable[Entry], tally: Tally) -> None:
    """No tick is much older than one that has run: a timer does not follow a clock back."""
    latest = 0
    for entry in entries:
        if entry.what == "chimed":
            if entry.tick < latest - _LEAST_STEP_BACK:
                tally.violate(f"a tick ran {latest - entry.tick} s behind a newer one: {entry}")
            latest = max(latest, entry.tick)


@dataclass
class Books:
    """The accounts of the jobs: what was offered and accepted, what the store has, what it did."""

    entries: Sequence[Entry]
    stored: Sequence[Job[int]]
    booked: Sequence[int]
    """What jobs wrote in their own transactions, if the store has tables."""

    def judge(self, tally: Tally) -> None:
        """Nothing accepted is lost, nothing happens twice, nothing comes from nowhere."""
        accepted = {entry.job: entry for entry in self.entries if entry.what == "accepted"}
        by_id = {job.id: job for job in self.stored}
        lost = [entry for id_, entry in accepted.items() if id_ not in by_id]
        unfinished = [job for job in self.stored if job.state != "succeeded"]
        tally.add("accepted", len(accepted))
        tally.add("succeeded", len(self.stored) - len(unfinished))
        tally.add("recovered", sum(len(entry.ids) for entry in self.entries))
        tally.add("lost", len(lost) + sum(job.id in accepted for job in unfinished))
        _violate(tally, "not succeeded", [f"{job.record}" for job in unfinished])
        _violate(tally, "lost", map(str, lost))
        self._judge_ends(tally)
        self._judge_effects(tally)
        self._judge_origins(tally)
        tally.expect_none("lost", "doubled", "invented", "ended by a stale attempt")

    def _judge_ends(self, tally: Tally) -> None:
        """Nothing that has succeeded runs again.

        A sink with fences refuses repeats, so it can say of no job that it was doubled. An attempt
        that was lost after its effect may be repeated; one that has succeeded may not. The history
        of a job tells them apart.
        """
        for job in self.stored:
            if job.state != "succeeded":
                continue
            outcomes = Counter(attempt.outcome for attempt in job.history)
            tally.add("doubled", max(0, outcomes["succeeded"] - 1))
            _, attempt = read_result(_result(job))
            if attempt != job.record.attempt:
                tally.add("ended by a stale attempt")
                tally.violate(f"attempt {attempt} has ended a job that was at {job.record}")

    def _judge_effects(self, tally: Tally) -> None:
        tally.add("repeats refused", _count(self.entries, "repeat"))
        effects = effects_of_jobs(self.entries)
        booked = Counter(self.booked)
        for job in self.stored:
            number, _ = read_result(_result(job)) if job.state == "succeeded" else (0, 0)
            happened = booked[number] if job.task == "book" else effects[job.id]
            tally.add("doubled", max(0, happened - 1))
            if happened == 0 and job.state == "succeeded":
                tally.violate(f"succeeded without an effect: {job.record}")

    def _judge_origins(self, tally: Tally) -> None:
        offered = {entry.number for entry in self.entries if entry.what == "offered"}
        numbers = Counter(_number(job) for job in self.stored)
        tally.add("invented", sum(number not in offered for number in numbers))
        tally.add("invented", sum(many - 1 for many in numbers.values()))
        stored = {job.id for job in self.stored}
        ran = {
            entry.job for entry in self.entries if entry.what == "began" and entry.number in offered
        }
        tally.add("invented", len(ran - stored))
        tally.add("invented", len(set(self.booked) - numbers.keys()))


def effects_of_jobs(entries: Iterable[Entry]) -> Counter[str]:
    """Return how often each job has taken effect in the sink."""
    return Counter(
        entry.key
        for entry in entries
        if entry.what == "effect" and entry.answer == "once" and entry.ok
    )


async def stored_jobs(app: Tenure) -> list[Job[int]]:
    """Return all jobs that the store has, but for the runs of timers."""
    jobs: list[Job[int]] = []
    cursor = None
    while True:
        page = await app.jobs(limit=1000, cursor=cursor)
        jobs += [job for job in page if not job.record.schedule]
        if (cursor := page.cursor) is None:
            return jobs


def _count(entries: Iterable[Entry], *kinds: str) -> int:
    return sum(entry.what in kinds for entry in entries)


def _violate(tally: Tally, kind: str, complaints: Iterable[str]) -> None:
    """Show the first few of what was found, and the number of the rest."""
    listed = list(complaints)
    tally.violate_all(f"{kind}: {complaint}" for complaint in listed[:_SHOWN])
    if len(listed) > _SHOWN:
        tally.violate(f"{kind}: and {len(listed) - _SHOWN} more")


def _count_repeated_fences(stays: Iterable[Entry], tally: Tally) -> None:
    seen = Counter((stay.key, stay.fence) for stay in stays)
    tally.add("repeated fences", sum(number - 1 for number in seen.values()))
    tally.expect_none("repeated fences")


def _falling_fences(entries: Iterable[Entry]) -> list[str]:
    """Return where a later holder has a lower fence, among those that did not lose their lease."""
    wrong: list[str] = []
    highest: dict[str, int] = defaultdict(int)
    for stay in sections_of(entries):
        if stay.limit == 1 and not stay.is_lost:
            if stay.fence <= highest[stay.key]:
                wrong.append(f"{stay} comes after fence {highest[stay.key]}")
            highest[stay.key] = max(highest[stay.key], stay.fence)
    return wrong


def _with_grants(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Add a grant for the fence of each holder and attempt, as the store has it."""
    origins = {"entered": "granted", "began": "claimed"}
    for entry in entries:
        yield entry
        if entry.what in origins:
            yield msgspec.structs.replace(entry, what=origins[entry.what])


def _count_stale_holders(entries: Sequence[Entry], tally: Tally) -> None:
    """A holder that was paused past its ttl must notice its loss before it leaves.

    A holder that was killed before it could look does not count.
    """
    inside: dict[tuple[str, str, int], Entry] = {}
    paused: dict[str, float] = {}
    stale: set[tuple[str, str, int]] = set()
    for entry in entries:
        where = (entry.by, entry.key, entry.fence)
        if entry.what == "entered":
            inside[where] = entry
        elif entry.what == "pause":
            paused[entry.detail] = entry.at
        elif entry.what == "resume":
            seconds = entry.at - paused.pop(entry.detail)
            stale |= {
                holder
                for holder, stay in inside.items()
                if holder[0] == entry.detail and seconds >= stay.ttl
            }
        elif entry.what in ("leaves", *_LOSSES):
            inside.pop(where, None)
            if where in stale:
                stale.discard(where)
                tally.add("stale holders")
                tally.add("stale holders told", entry.what in _LOSSES)
                if entry.what == "leaves":
                    tally.violate(f"a stale holder was not told: {entry}")


def _result(job: Job[int]) -> int:
    assert job.record.result is not None
    return msgspec.json.decode(job.record.result, type=int)


def _number(job: Job[int]) -> int:
    """Return the first argument of a job."""
    arguments = msgspec.json.decode(job.record.payload)
    return int(arguments["number"] if isinstance(arguments, dict) else arguments[0])
