"""Checks the life of jobs: legal moves only, one settlement per fence, none lost, none invented.

The store's answers are replayed on a model that knows the table of states, who holds which job
under which fence, and which replicas live.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from tenure.core.jobs.states import FINISHED, MOVES, JobState
from tests.sim.checks.attempts import Attempts
from tests.sim.history import Entry

__all__ = ["check_jobs"]

_CALLS = {
    "succeeded": "succeed",
    "failed": "fail",
    "retry": "retry",
    "handed back": "hand back",
    "cancelled": "confirm",
}
_SUSPICIOUS = 2
# Whatever the store's clock shows: so many ttls pass in earnest before a replica is taken for dead.
_SILENCE = 0.39
_RECOVERED = {"waiting": "recover", "failed": "give up", "cancelled": "stop"}
_ENDS: Mapping[tuple[str, JobState | None], JobState] = {
    (move.call, move.start): move.end for move in MOVES
}


@dataclass(slots=True)
class _Job:
    state: JobState
    due: int
    key: str
    timeout: int
    since: int | None = None
    """When the pause before `due` began; None: it need not wait for a time."""
    fence: int = 0
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    replica: str = ""
    claim_no: int = 0
    deadline: int | None = None
    cancelling: bool = False
    settled: tuple[int, str] = (0, "")

    def wait(self, now: int, seconds: float) -> None:
        """Begin to wait; without a pause it keeps its due time and may start at once."""
        self.since = now if seconds > 0 else None
        self.due = now + round(seconds * 1e6) if seconds > 0 else self.due


@dataclass(slots=True)
class _Replica:
    renewed: int
    ttl: int
    heard: float
    """When it was renewed last, by a clock that cannot be set."""
    claim_no: int = 0

    def has_expired(self, now: int, by: int | None = None) -> bool:
        self.renewed = min(self.renewed, now)
        return self.renewed + self.ttl <= (now if by is None else by)


@dataclass(slots=True)
class _Stored:
    """What the store has, as far as its answers tell."""

    jobs: dict[str, _Job] = field(default_factory=dict)
    unfinished: dict[str, _Job] = field(default_factory=dict)
    """Those of the jobs that had not ended at the last beat. A long history has many others."""
    replicas: dict[str, _Replica] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    keys: dict[str, str] = field(default_factory=dict)


class _Jobs:
    def __init__(self, loss_budget: int, tries: int) -> None:
        self._loss_budget = loss_budget
        self._attempts = Attempts(self.report, tries)
        self.stored = _Stored()
        self.wrong: list[str] = []
        self.lost_jobs = 0
        self._copy = _Stored()
        self._claim_call = Entry(at=0, by="", what="")
        self._may_claim = False
        self._highest: dict[str, int] = {}
        self._claims: dict[tuple[str, int], int] = {}
        """All that were claimed, and how often each was lost before."""
        self._settled: set[tuple[str, int]] = set()
        self._began: set[tuple[str, int]] = set()
        self._offered: set[int] = set()
        self._accepted: dict[str, Entry] = {}
        self._numbers: dict[int, str] = {}
        self._effects: dict[str, int] = {}
        self._saved: dict[str, Entry] = {}
        self._running: dict[str, set[tuple[str, int]]] = defaultdict(set)
        """What each process runs, by its own word."""
        self._was_set_back = False
        self._forgotten: set[str] = set()
        """What the store has lost."""
        self._declared_dead: set[str] = set()
        """All replicas that ever were, also if the store has lost that."""
        self._rolled_back_at = 0
        """When the store last did, by its clock."""

    def report(self, entry: Entry, why: str) -> None:
        whose = f"replica {entry.replica[:8]}" if entry.replica else f"by {entry.holder}"
        self.wrong.append(
            f"{entry.at:.6f} s, {entry.by}: {entry.what} job {entry.job} {whose} "
            f"fence {entry.fence} {entry.outcome} {entry.answer}: {why}"
        )

    def move(self, entry: Entry, job: _Job, call: str) -> None:
        end = _ENDS.get((call, job.state))
        if end is None:
            self.report(entry, f"nobody can {call} a job that is {job.state}")
            return
        job.state = end
        if end != "running":
            job.replica, job.deadline = "", None
            job.cancelling = False

    # Replicas.

    def joined(self, entry: Entry) -> None:
        if entry.replica in self.stored.dead:
            self.report(entry, "the dead live")
        ttl = round(entry.ttl * 1e6)
        replica = self.stored.replicas.setdefault(entry.replica, _Replica(entry.now, ttl, entry.at))
        replica.renewed, replica.ttl, replica.heard = entry.now, ttl, entry.at

    def beat(self, entry: Entry) -> None:
        replica = self.stored.replicas.get(entry.replica)
        if (replica is not None) != entry.ok:
            self.report(entry, "it is taken for dead, or the dead live")
        if replica is not None:
            replica.renewed, replica.ttl, replica.heard = (
                entry.now,
                round(entry.ttl * 1e6),
                entry.at,
            )
            self._postpone(entry)
            cancels = [id_ for id_, job in self._held(entry.replica) if job.cancelling]
            if entry.ok and sorted(cancels) != entry.ids:
                self.report(entry, f"it is told to cancel {entry.ids}, not {cancels}")
        self.looked(entry)
        unfinished = self.stored.unfinished = {
            id_: job for id_, job in self.stored.unfinished.items() if job.state not in FINISHED
        }
        for job in unfinished.values():
            if job.state == "waiting" and job.since is not None and job.since > entry.now:
                job.due, job.since = entry.now + (job.due - job.since), entry.now

    def _postpone(self, entry: Entry) -> None:
        """Move deadlines along with the clock, by what the beat has told of it."""
        for _, job in self._held(entry.replica):
            if job.deadline is not None:
                job.deadline += round(entry.seconds * 1e6)

    def looked(self, entry: Entry) -> None:
        """Cut short what was renewed in the future: each beat and each look for orphans does."""
        for replica in self.stored.replicas.values():
            replica.has_expired(entry.now)

    def declared_dead(self, entry: Entry) -> None:
        replica = self.stored.replicas.pop(entry.replica, None)
        self.stored.dead.add(entry.replica)
        self._declared_dead.add(entry.replica)
        if replica is None:
            self.report(entry, "it was not known")
        elif not entry.ok:  # not by itself, nor by its supervisor
            if not replica.has_expired(entry.now, entry.seen):
                self.report(entry, "it lives")
            silence = entry.at - replica.heard
            if silence < _SILENCE * replica.ttl / 1e6:
                self.report(entry, f"it was heard of {silence:.3f} s ago")

    def removed(self, entry: Entry) -> None:
        self.stored.dead.discard(entry.replica)
        if held := self._held(entry.replica):
            self.report(entry, f"{held} were left with it")

    def _held(self, replica: str) -> list[tuple[str, _Job]]:
        jobs = self.stored.unfinished.items()
        return [
            (id_, job) for id_, job in jobs if job.state == "running" and job.replica == replica
        ]

    # Jobs.

    def inserted(self, entry: Entry) -> None:
        stored, job_before = self.stored, self.stored.jobs.get(entry.job)
        if entry.answer != "created":
            # A clock that was set back keeps the keys of finished jobs until it has caught up.
            may_last = entry.kept or self._was_set_back
            finished = job_before is not None and job_before.state in FINISHED and not may_last
            if job_before is None or finished or job_before.key != entry.key:
                self.report(entry, "it does not have that key")
            return
        if job_before is not None:
            return
        other = stored.jobs.get(stored.keys.get(entry.key, ""))
        if entry.key and other is not None and (entry.kept or other.state not in FINISHED):
            self.report(entry, f"{stored.keys[entry.key]} has its key {entry.key!r}")
        if not entry.key and self._numbers.setdefault(entry.number, entry.job) != entry.job:
            self.report(entry, f"this was stored before as {self._numbers[entry.number]}")
        stored.keys[entry.key] = entry.job
        job = _Job("waiting", entry.now, entry.key, round(entry.ttl * 1e6))
        job.wait(entry.now, entry.seconds)
        stored.jobs[entry.job] = stored.unfinished[entry.job] = job

    def claim_call(self, entry: Entry) -> None:
        self._claim_call = entry
        replica = self.stored.replicas.get(entry.replica)
        if (replica is not None) != entry.ok:
            self.report(entry, "it is taken for dead, or the dead claim")
        self._may_claim = False
        if replica is not None and entry.number > replica.claim_no:
            self._may_claim = not replica.has_expired(entry.now)
            replica.claim_no = entry.number if self._may_claim else replica.claim_no

    def claimed(self, entry: Entry) -> None:
        number = self._claim_call.number
        job = self.stored.jobs.get(entry.job)
        replica = self.stored.replicas.get(entry.replica)
        if job is None or replica is None:
            self.report(entry, "there is no such job or replica")
            return
        if job.state == "running" and job.fence == entry.fence:
            if (job.replica, job.claim_no) != (entry.replica, number):
                self.report(entry, f"it runs on {job.replica[:8]}, by claim {job.claim_no}")
            return
        if not self._may_claim:
            self.report(entry, f"this replica has expired, or claim {number} was answered before")
        if job.since is not None and job.due > entry.now:
            self.report(entry, f"it is due {job.due - entry.now} us later")
        if entry.fence <= self._highest.get(entry.job, 0):
            self.report(entry, f"an earlier fence was {self._highest[entry.job]}")
        if entry.attempt != job.attempt + 1:
            self.report(entry, f"attempt {entry.attempt} follows {job.attempt}")
        self.move(entry, job, "claim")
        job.replica, job.claim_no, job.fence = entry.replica, number, entry.fence
        job.attempt = entry.attempt
        job.deadline = entry.now + job.timeout if job.timeout else None
        self._highest[entry.job] = max(entry.fence, self._highest.get(entry.job, 0))
        self._claims[entry.job, entry.fence] = job.losses

    def settled(self, entry: Entry) -> None:
        job = self.stored.jobs.get(entry.job)
        is_current = job is not None and job.state == "running" and job.fence == entry.fence
        if job is None or entry.answer == "lost":
            if is_current or entry.answer != "lost":
                self.report(entry, "that is not so")
            return
        if entry.answer == "repeated":
            if job.settled != (entry.fence, entry.outcome):
                self.report(entry, f"the last end was {job.settled}")
            return
        if not is_current:
            self.report(entry, f"it is {job.state} under fence {job.fence}")
            return
        if (entry.job, entry.fence) in self._settled:
            self.report(entry, "this fence was settled before")
        self._settled.add((entry.job, entry.fence))
        self._attempts.settled(entry, job.failures)
        job.settled = entry.fence, entry.outcome
        job.failures += entry.outcome in ("failed", "retry")
        returns = entry.outcome in ("retry", "handed back")
        if (entry.answer == "cancelled") != (returns and job.cancelling):
            self.report(entry, f"a cancel is pending: {job.cancelling}")
        if returns:
            job.wait(entry.now, entry.seconds)
        self.move(entry, job, "stop" if returns and job.cancelling else _CALLS[entry.outcome])

    def noted(self, entry: Entry) -> None:
        job = self.stored.jobs.get(entry.job)
        is_current = job is not None and job.state == "running" and job.fence == entry.fence
        if is_current != entry.ok:
            self.report(entry, "a note of a stale attempt, or a good one refused")

    def recovered(self, entry: Entry) -> None:
        job = self.stored.jobs.get(entry.job)
        if job is None or (job.replica, job.fence) != (entry.replica, entry.fence):
            self.report(entry, "it did not run there")
            return
        overdue = job.deadline is not None and job.deadline + entry.seconds * 1e6 <= entry.seen
        # A settlement whose reply was lost is sent again, also if the store fell back meanwhile.
        was_dead = entry.replica in self._declared_dead and entry.seen <= self._rolled_back_at
        if entry.replica not in self.stored.dead and not overdue and not was_dead:
            self.report(entry, "its replica lives")
        if (entry.job, entry.fence) in self._settled:
            self.report(entry, "this fence was settled before")
        self._settled.add((entry.job, entry.fence))
        job.settled = entry.fence, "lost"
        job.losses += 1
        if (entry.outcome == "failed") != (job.losses > self._loss_budget) and not job.cancelling:
            self.report(entry, f"lost {job.losses} times, and {self._loss_budget} are allowed")
        if entry.number != job.losses:
            self.report(entry, f"it was lost {job.losses} times")
        job.wait(entry.now, entry.ttl)
        self.move(entry, job, _RECOVERED[entry.outcome])

    def cancelled(self, entry: Entry) -> None:
        job = self.stored.jobs.get(entry.job)
        if job is None or job.state in FINISHED:
            if entry.answer != ("" if job is None else "finished"):
                self.report(entry, "there is nothing to cancel")
        elif job.state == "running":
            job.cancelling = True
            if entry.answer != "requested":
                self.report(entry, "it runs")
        else:
            if entry.answer != "cancelled":
                self.report(entry, "it waits")
            self.move(entry, job, "cancel")

    # What the store loses.

    def stepped(self, entry: Entry) -> None:
        self._was_set_back = self._was_set_back or entry.seconds < 0

    def emptied(self, _: Entry) -> None:
        self._forgotten |= set(self.stored.jobs)
        self.stored = _Stored()
        self._saved.clear()

    def copied(self, _: Entry) -> None:
        self._copy = deepcopy(self.stored)

    def rolled_back(self, entry: Entry) -> None:
        self._rolled_back_at = entry.now
        self._forgotten |= set(self.stored.jobs) - set(self._copy.jobs)
        self.stored, self._copy = self._copy, _Stored()
        self._settled.clear()  # what was settled since may be settled again
        self._attempts.forget()
        self._saved.clear()

    # What the processes say.

    def offered(self, entry: Entry) -> None:
        self._offered.add(entry.number)

    def accepted(self, entry: Entry) -> None:
        self._accepted[entry.job] = entry

    def began(self, entry: Entry) -> None:
        attempt = entry.job, entry.fence
        if attempt not in self._claims:
            self.report(entry, "nobody claimed it")
        if attempt in self._began:
            self.report(entry, "this attempt began twice")
        self._began.add(attempt)
        saved = self._saved.get(entry.job)
        # Who was paused between its claim and its beginning cannot know what came after it.
        if saved is not None and saved.fence < entry.fence and saved.detail != entry.detail:
            self.report(entry, f"{saved.detail!r} was saved, and {entry.detail!r} found")
        self._begin_alone(entry)

    def _begin_alone(self, entry: Entry) -> None:
        """What was lost twice may kill its process: nothing runs beside it."""
        running = self._running[entry.by]
        running.add((entry.job, entry.fence))
        if len(running) > 1 and max(self._claims.get(id_, 0) for id_ in running) >= _SUSPICIOUS:
            self.report(entry, "a job that was lost too often does not run alone")

    def ended(self, entry: Entry) -> None:
        self._running[entry.by].discard((entry.job, entry.fence))
        self._attempts.ended(entry)

    def saved(self, entry: Entry) -> None:
        if entry.job in self.stored.jobs:
            self._saved[entry.job] = entry

    def effect(self, entry: Entry) -> None:
        if entry.ok:
            self._effects[entry.key] = entry.fence

    def final(self, entry: Entry) -> None:
        job = self.stored.jobs.pop(entry.job, None)
        self._accepted.pop(entry.job, None)
        if job is None or job.state != entry.outcome:
            self.report(entry, f"it should be {'absent' if job is None else job.state}")
        elif (entry.attempt, entry.failures, entry.losses) != (
            job.attempt,
            job.failures,
            job.losses,
        ):
            self.report(entry, f"{entry} has counted otherwise than {job}")
        if entry.number not in self._offered:
            self.report(entry, f"nobody asked for number {entry.number}")
        if entry.outcome not in FINISHED:
            self.report(entry, "it has no end")
        # A store that fell back may let an older attempt end than the one that was last to write.
        if entry.outcome == "succeeded" and self._effects.get(entry.job, 0) < entry.fence:
            self.report(entry, "it has succeeded without an effect")

    def end(self) -> None:
        """Look for what is missing; only what the store has lost may be."""
        for id_, entry in self._accepted.items():
            if id_ in self._forgotten:
                self.lost_jobs += 1
            else:
                self.report(entry, "it was accepted, and is gone")


def check_jobs(
    history: Iterable[Entry], *, loss_budget: int = 3, tries: int = 3
) -> tuple[list[str], int]:
    """Return what is wrong with the jobs of a history, and how many the store has lost.

    - Only the moves of the table of states; attempts follow one another, and so do their fences.
    - One settlement per fence, and none by whoever was taken for dead.
    - A worker says of an attempt what its handler did; what has failed is tried again as often as
      `tries` allows, after the pause that it asked for.
    - Only the dead are recovered, and all they had; what was lost too often fails.
    - What was lost twice runs alone. What an attempt has saved, the next one finds.
    - What was accepted is there in the end, has ended, and was asked for once; what has succeeded
      has had its effect.
    """
    model = _Jobs(loss_budget, tries)
    steps = {name.replace("_", " "): getattr(model, name) for name in _STEPS}
    steps |= dict.fromkeys(("stopped", "failed", "finished"), model.ended)
    is_finished = False
    for entry in history:
        is_finished = is_finished or entry.what == "final"
        step = steps.get(entry.what)
        if step is not None and (not is_finished or entry.what in ("final", "effect")):
            step(entry)
    if is_finished:
        model.end()
    return model.wrong, model.lost_jobs


_STEPS = (
    "joined",
    "beat",
    "looked",
    "declared_dead",
    "removed",
    "inserted",
    "claim_call",
    "claimed",
    "settled",
    "noted",
    "recovered",
    "cancelled",
    "stepped",
    "emptied",
    "copied",
    "rolled_back",
    "offered",
    "accepted",
    "began",
    "saved",
    "effect",
    "final",
)
