"""The fifth act: a worker is killed in the middle of reports, and somebody follows one of them."""

import asyncio
import re
from typing import Any

from tour.screen import Screen
from tour.service import APIS, TTL, WORKERS, Logged, Service
from tour.verdict import Verdict
from tour.visiting import Event, Visiting, rising

REPORTS = 12
PAGES = 10
BEFORE_KILL = 4  # pages of the one that is followed
RECOVERY = TTL + 3  # seconds until the jobs of a lost worker have begun again
BEGUN = re.compile(r"report (\S+): attempt (\d+) has (\d+) pages")


class Outliving:
    """Reports, and a worker that dies."""

    def __init__(
        self, service: Service, visiting: Visiting, screen: Screen, verdict: Verdict
    ) -> None:
        self._service = service
        self._visiting = visiting
        self._screen = screen
        self._verdict = verdict
        self.victim = ""
        self.killed_at = 0.0
        self._pages = 0
        """What was seen of the followed report before the kill."""

    async def run(self) -> None:
        screen, ada = self._screen, self._visiting.ada
        screen.title("5  Jobs outlive their workers")
        screen.say(f"Ada posts {REPORTS} reports of {PAGES} pages, and follows the first one.")
        locations = []
        for n in range(REPORTS):
            locations.append(await ada.submit(f"Part {n}", PAGES, APIS[n % 2]))
            await asyncio.sleep(0.05)  # or one worker takes all of them at once
        seen = await self._follow_and_kill(locations[0])
        self._judge_stream(seen)
        jobs = [await self._end_of(location) for location in locations]
        self._judge_recovery(jobs)

    async def _follow_and_kill(self, location: str) -> list[Event]:
        """Return the events of a job; kill its worker in the middle of them."""
        seen: list[Event] = []
        id_ = location.rpartition("/")[2]
        async for event in self._visiting.follow(location, "api-1"):
            seen.append(event)
            self._pages = self._pages if self.victim else round(event.part * PAGES)
            if not self.victim and self._pages >= BEFORE_KILL:
                self.victim = await self._writer_of(id_)
                pid = self._service.pid(self.victim)
                self._screen.say(f"Now {self.victim}, which writes it, is killed (kill -9 {pid}).")
                self._service.kill(self.victim)
                self.killed_at = self._service.now()
        return seen

    async def _writer_of(self, id_: str) -> str:
        """Return the worker that runs a job. Its log may arrive later than the job's events."""
        [name] = await self._service.until(
            lambda: [line.process for line, job, *_ in self._begun() if job == id_],
            f"a log tells of {id_}",
        )
        return name

    async def _end_of(self, location: str) -> dict[str, Any]:
        reply = await self._visiting.ada.ask("GET", location, "api-2", Prefer="wait=20")
        return reply.json()

    def _begun(self) -> list[tuple[Logged, str, int, int]]:
        """Return each attempt that has begun: its line, job, number, and pages that are there."""
        return [
            (line, found[1], int(found[2]), int(found[3]))
            for line in self._service.found(BEGUN)
            if (found := BEGUN.search(line.text))
        ]

    def _judge_stream(self, seen: list[Event]) -> None:
        judge, last = self._verdict.judge, seen[-1]
        attempt, id_ = last.job["attempt"], last.job["id"]
        went_on = rising(seen) and last.kind == "result" and attempt <= 2
        judge(f"her stream goes on, without a step back: attempt {attempt}", kept=went_on)
        if attempt == 1:
            # Only the worker of the first attempt can end it. On a busy machine it did so
            # before the kill.
            judge("it was done before the kill: nothing was left to write", kept=True)
            return
        again = [pages for _, job, number, pages in self._begun() if (job, number) == (id_, 2)]
        kept = len(again) == 1 and again[0] >= self._pages
        judge(f"it goes on where it was: {self._pages} pages seen, {again} kept", kept=kept)

    def _judge_recovery(self, jobs: list[dict[str, Any]]) -> None:
        judge, note = self._verdict.judge, self._verdict.note
        mine = {job["id"] for job in jobs}
        begun = [one for one in self._begun() if one[1] in mine]
        lost = {job for line, job, *_ in begun if line.process == self.victim}
        again = {job: line for line, job, number, _ in begun if number > 1}
        for name in WORKERS:
            took = sum(line.process == name for line in again.values())
            if took:
                self._screen.told(name, f"has gone on with {took} of its reports")
        took = max((line.at for line in again.values()), default=self.killed_at) - self.killed_at
        promise = f"lost jobs run again within ttl + 3 s = {RECOVERY:g} s"
        judge(f"{promise}: {took:.2f} s", kept=took <= RECOVERY)
        same = set(again) <= lost
        judge(f"only they do: {len(again)} begun again, {len(lost)} were its own", kept=same)
        done = sum(job["state"] == "succeeded" for job in jobs)
        whole = all(job["result"] and job["result"]["pages"] == PAGES for job in jobs)
        judge(f"no report is lost: {done} of {REPORTS}", kept=done == REPORTS and whole)
        note("recovery of jobs after the kill", f"{took:.2f} s", f"{RECOVERY:g} s")
        note("reports done, whole", str(done), str(REPORTS))
