"""Judges the shop after a storm."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenure import Tenure
from tenure.jobs import Job
from tests.chaos.judge import stored_jobs
from tests.chaos.tally import Tally
from tests.sim.history import Entry

SERVED_WITHIN = 10.0
"""Seconds from the enqueue of a small tenant's job to its end; it runs for 0.1 s."""
_AFTER_A_LOSS = 20.0
"""The ttl of 10 s, and two looks at the expired replicas."""
_EFFECTS = ("charged", "reported")
_MEMORY_MAX = 250
"""Of a worker process, in MB."""
_BYTES_PER_JOB = 2000
"""What Redis may keep of each job for a day, beside what it had at first."""


@dataclass
class ShopBooks:
    """What the processes, the mail server and the samples say."""

    entries: Sequence[Entry]
    mails: Sequence[tuple[str, str]]
    """What was delivered: the id of the job, and the process that it came from."""
    living: Collection[str]
    """The processes that have not been killed."""
    memory: Sequence[int]
    redis: Sequence[int]

    async def judge(self, app: Tenure, tally: Tally) -> None:
        """Compare all of it with the store."""
        jobs = {job.id: job for job in await stored_jobs(app)}
        accepted = {entry.job: entry.key for entry in self.entries if entry.what == "accepted"}
        tally.add("accepted", len(accepted))
        tally.add("refused", sum(entry.what == "refused" for entry in self.entries))
        tally.add("succeeded", sum(job.state == "succeeded" for job in jobs.values()))
        tally.add("recovered", sum(job.losses > 0 for job in jobs.values()))
        self._judge_losses(jobs, accepted, tally)
        self._judge_doubles(jobs, tally)
        self._judge_small(jobs, accepted, tally)
        self._judge_ticks(tally)
        self._judge_memory(jobs, tally)

    def _judge_losses(
        self, jobs: Mapping[str, Job[Any]], accepted: Mapping[str, str], tally: Tally
    ) -> None:
        delivered = {id_ for id_, _ in self.mails}
        lost = [id_ for id_ in accepted if id_ not in jobs or jobs[id_].state != "succeeded"]
        undelivered = [
            job.id for job in jobs.values() if job.task == "send_mail" and job.id not in delivered
        ]
        for id_ in [*lost, *undelivered][:5]:
            tally.violate(f"lost: {jobs[id_].record if id_ in jobs else id_}")
        tally.add("lost", len(lost))
        tally.add("mails lost", len(undelivered))
        tally.add("mails delivered", len(delivered))
        retried = [job for job in jobs.values() if job.task == "send_mail" and job.failures]
        tally.add("mails retried", len(retried))
        tally.expect_none("lost", "mails lost")

    def _judge_doubles(self, jobs: Mapping[str, Job[Any]], tally: Tally) -> None:
        """Only a process that was killed after its effect leaves a repeat to another one."""
        effects = [*self.mails]
        effects += [(entry.job, entry.by) for entry in self.entries if entry.what in _EFFECTS]
        times = Counter(id_ for id_, _ in effects)
        by_living = Counter(id_ for id_, process in effects if process in self.living)
        repeated = [id_ for id_, number in times.items() if number > 1]
        doubled = [id_ for id_, number in by_living.items() if number > 1]
        orders = {entry.job: entry.number for entry in self.entries if entry.what == "charged"}
        twice = [order for order, times in Counter(orders.values()).items() if times > 1]
        for id_ in doubled[:5]:
            tally.violate(f"doubled: {jobs[id_].record}")
        tally.add("repeated after a kill", len(repeated) - len(doubled))
        tally.add("doubled", len(doubled))
        tally.add("orders charged by two jobs", len(twice))
        tally.expect_none("doubled", "orders charged by two jobs")

    def _judge_small(
        self, jobs: Mapping[str, Job[Any]], accepted: Mapping[str, str], tally: Tally
    ) -> None:
        small = [jobs[id_] for id_, kind in accepted.items() if kind == "small" and id_ in jobs]
        waits = [
            (job.finished - job.created).total_seconds() - _AFTER_A_LOSS * job.losses
            for job in small
            if job.finished is not None
        ]
        tally.demand("jobs of the small tenant", 3)
        tally.add("jobs of the small tenant", len(waits))
        worst = max(waits, default=0.0)
        tally.add("its worst wait in ms", round(1000 * worst))
        if worst > SERVED_WITHIN:
            tally.violate(f"a job of the small tenant took {worst:.1f} s")

    def _judge_ticks(self, tally: Tally) -> None:
        ticks = Counter((entry.key, entry.tick) for entry in self.entries if entry.what == "chimed")
        tally.add("ticks", len(ticks))
        tally.add("ticks run twice", sum(times > 1 for times in ticks.values()))
        tally.expect_none("ticks run twice")

    def _judge_memory(self, jobs: Mapping[str, Job[Any]], tally: Tally) -> None:
        fifths = [self.memory[part * len(self.memory) // 5] for part in range(5)]
        over_time = ", ".join(map(str, [*fifths, self.memory[-1]]))
        tally.progress(f"the largest worker had {over_time} MB, Redis {self.redis[-1] >> 10:,} kB")
        tally.add("MB of a worker at first", self.memory[0])
        tally.add("MB of a worker at most", max(self.memory))
        tally.add("MB of a worker at last", self.memory[-1])
        tally.add("kB of Redis at first", self.redis[0] >> 10)
        tally.add("kB of Redis at last", self.redis[-1] >> 10)
        if max(self.memory) > _MEMORY_MAX:
            tally.violate(f"a worker had {max(self.memory)} MB")
        per_job = (self.redis[-1] - self.redis[0]) / max(1, len(jobs))
        tally.add("bytes of Redis per job", round(per_job))
        if per_job > _BYTES_PER_JOB:
            tally.violate(f"Redis keeps {per_job:.0f} bytes of each job")
