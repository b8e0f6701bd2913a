"""Checks answers to clients: one job per key, visible to its owner only, and final once ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tenure.core.jobs.states import FINISHED
from tests.sim.history import Entry

__all__ = ["check_http"]

_REUSED = "idempotency-key-reused"


class _Answers:
    """What clients were told so far."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._has_lost = False
        """Whether the store has lost writes: it may do again, or forget, what was told before."""
        self._stored: set[str] = set()
        """All jobs that ever were."""
        self._since: set[str] = set()
        """Those that the store was given after it has lost something."""
        self._owners: dict[str, str] = {}
        self._of_key: dict[tuple[str, str], Entry] = {}
        self._new: set[tuple[str, str]] = set()
        self._accepted: dict[str, Entry] = {}
        self._offered: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._refused: list[Entry] = []
        self._seen: dict[str, list[Entry]] = defaultdict(list)
        self._streamed: dict[tuple[str, str], Entry | None] = {}
        self._got: list[Entry] = []
        self._finals: dict[str, Entry] = {}

    def report(self, entry: Entry, why: str) -> None:
        self.wrong.append(
            f"{entry.at:.6f} s, {entry.by} for {entry.holder}: {entry.what} {entry.key} "
            f"job {entry.job} revision {entry.revision} {entry.outcome} {entry.answer}: {why}"
        )

    def emptied(self, _: Entry) -> None:
        """Expect nothing more of the jobs so far, but that they stay with their owners."""
        self._has_lost = True
        self._since.clear()
        records: tuple[set[Any] | dict[Any, Any] | list[Any], ...] = (
            self._of_key,
            self._new,
            self._accepted,
            self._refused,
            self._seen,
            self._streamed,
            self._got,
        )
        for record in records:
            record.clear()

    rolled_back = emptied

    def inserted(self, entry: Entry) -> None:
        if self._has_lost and entry.job not in self._stored:
            self._since.add(entry.job)
        self._stored.add(entry.job)

    def _counts(self, job: str) -> bool:
        """Whether the store has kept all that it was told of a job."""
        return not self._has_lost or job in self._since

    # Submitting.

    def offered(self, entry: Entry) -> None:
        self._offered[entry.holder, entry.key].add(entry.number)

    def accepted(self, entry: Entry) -> None:
        if not entry.key:
            return  # told by a producer, not by a client
        self._is_own(entry, self._owners.setdefault(entry.job, entry.holder))
        if entry.ids != [entry.job]:
            self.report(entry, f"it shows {entry.ids}")
        if not self._counts(entry.job):
            return
        self._accepted.setdefault(entry.job, entry)
        key = entry.holder, entry.key
        first = self._of_key.setdefault(key, entry)
        if first.detail != entry.detail:
            self.report(entry, f"it was {first.detail} before, and is {entry.detail}")
        if first.number != entry.number:
            self.report(entry, f"it was asked for {first.number}, not for {entry.number}")
        if not entry.ok and key in self._new:
            self.report(entry, "it is new for the second time")
        if not entry.ok:
            self._new.add(key)

    def refused(self, entry: Entry) -> None:
        if entry.detail == _REUSED and len(self._offered[entry.holder, entry.key]) == 1:
            self.report(entry, "nothing else was asked for under this key")
        if entry.key and not self._has_lost:
            self._refused.append(entry)

    # Looking.

    def _is_own(self, entry: Entry, owner: str | None) -> bool:
        if owner is not None and owner != entry.holder:
            self.report(entry, f"it is a job of {owner}")
        return owner == entry.holder

    def saw(self, entry: Entry) -> None:
        if not self._is_own(entry, self._owners.get(entry.job)) or not self._counts(entry.job):
            return
        # Who asks after others were answered sees no less than they have seen.
        for other in self._seen[entry.job]:
            if other.at > entry.seconds:
                continue
            if other.outcome in FINISHED and other.outcome != entry.outcome:
                self.report(entry, f"it was {other.outcome} at {other.at} s")
            if entry.revision and other.revision > entry.revision:
                self.report(entry, f"it was at revision {other.revision} at {other.at} s")
        self._seen[entry.job].append(entry)

    def denied(self, entry: Entry) -> None:
        if self._owners.get(entry.job) == entry.holder and self._counts(entry.job):
            self.report(entry, "it was accepted, and is gone")

    def paged(self, entry: Entry) -> None:
        for id_ in entry.ids:
            self._is_own(entry, self._owners.get(id_))
        own = {
            accepted.job for accepted in self._accepted.values() if accepted.holder == entry.holder
        }
        expected = {id_ for id_ in own if self._accepted[id_].at <= entry.seconds}
        if not expected <= set(entry.ids):
            self.report(entry, f"{sorted(expected - set(entry.ids))} are missing")

    def got(self, entry: Entry) -> None:
        self._is_own(entry, self._owners.get(entry.job))
        if self._counts(entry.job):
            self._got.append(entry)

    # Streams.

    def follows(self, entry: Entry) -> None:
        if self._counts(entry.job):
            self._streamed[entry.by, entry.job] = None

    def streamed(self, entry: Entry) -> None:
        is_own = self._is_own(entry, self._owners.get(entry.job))
        if not entry.ok:
            self.report(entry, "it tells of another job")
        if not is_own or not self._counts(entry.job):
            return
        last = self._streamed.get((entry.by, entry.job))
        if last is not None and last.revision >= entry.revision:
            self.report(entry, f"revision {last.revision} was told before")
        if last is not None and last.outcome in FINISHED:
            self.report(entry, "something comes after the last event")
        if (entry.outcome == "succeeded") != (entry.answer == "result"):
            self.report(entry, "the kind of the event is another")
        self._streamed[entry.by, entry.job] = entry
        self._seen[entry.job].append(entry)

    def closed(self, entry: Entry) -> None:
        if self._counts(entry.job) and not self._has_ended(entry.by, entry.job):
            self.report(entry, "told to stop before the last event")

    def reopened(self, entry: Entry) -> None:
        if self._counts(entry.job):
            self.report(entry, "who has seen the last event is given a stream again")

    def _has_ended(self, client: str, job: str) -> bool:
        last = self._streamed.get((client, job))
        return last is not None and last.outcome in FINISHED

    # In the end.

    def final(self, entry: Entry) -> None:
        self._finals[entry.job] = entry

    def end(self) -> None:
        """Compare what was told with what has become of it."""
        for (client, job), last in self._streamed.items():
            if not self._has_ended(client, job):
                self.wrong.append(f"{client} has not got the last event of {job}, but {last}")
        self._compare_keys()
        self._compare_ends()

    def _compare_keys(self) -> None:
        for refused in self._refused:
            first = self._of_key.get((refused.holder, refused.key))
            if first is not None and first.number == refused.number:
                self.report(refused, f"this request has the job {first.job}")
        for key in sorted({key for _, key in self._offered if key}):
            asking = [numbers for (_, other), numbers in self._offered.items() if other == key]
            jobs = [
                id_ for id_, final in self._finals.items() if final.number in set.union(*asking)
            ]
            if len(jobs) > len(asking):
                self.wrong.append(f"{len(asking)} owners have {len(jobs)} jobs of {key}: {jobs}")

    def _compare_ends(self) -> None:
        for id_, accepted in self._accepted.items():
            final = self._finals.get(id_)
            if final is None or final.number != accepted.number:
                self.report(accepted, f"in the end it is {final}")
        for id_, seen in self._seen.items():
            for status in seen:
                final = self._finals.get(id_)
                if status.outcome in FINISHED and (
                    final is None or final.outcome != status.outcome
                ):
                    self.report(status, f"in the end it is {final}")
        for result in self._got:
            final = self._finals.get(result.job)
            has_succeeded = final is not None and final.outcome == "succeeded"
            if has_succeeded != (result.answer == "200") or result.answer == "not-ready":
                self.report(result, f"in the end it is {final}")
            if final is not None and final.number != result.number:
                self.report(result, f"the result of {result.number}, and it does {final.number}")


_STEPS = (
    "emptied",
    "rolled_back",
    "inserted",
    "offered",
    "accepted",
    "refused",
    "saw",
    "denied",
    "paged",
    "got",
    "follows",
    "streamed",
    "closed",
    "reopened",
    "final",
)


def check_http(history: Iterable[Entry]) -> list[str]:
    """Return what is wrong with what the clients of a history were told.

    - One job for each owner and key, always at the same address, for one body only.
    - What was accepted is there from then on, does what was asked for, and has one end; what is
      finished stays as it is, and nobody sees an older state than was told before.
    - Nobody sees anything of another owner's job.
    - Revisions of a stream rise, also when it is resumed elsewhere, and its last event comes.

    Once the store has lost writes, this holds for the jobs that it was given since then; of all
    others only their owners are looked at.
    """
    answers = _Answers()
    steps = {name.replace("_", " "): getattr(answers, name) for name in _STEPS}
    is_finished = False
    for entry in history:
        step = steps.get(entry.what)
        if step is not None:
            is_finished = is_finished or entry.what == "final"
            step(entry)
    if is_finished:
        answers.end()
    return answers.wrong
