"""Step 5: a worker is killed while it runs jobs, and a client follows one of them."""

import asyncio
import re
from typing import Any

from tour.http_steps import Event, HttpSteps, rising
from tour.screen import Screen
from tour.service import APIS, TTL, WORKERS, Logged, Service
from tour.verdict import Verdict

REPORTS = 12
PAGES = 10
BEFORE_KILL = 4  # pages of the followed report
RECOVERY = TTL + 3  # seconds until the jobs of a lost worker run again
BEGUN = re.compile(r"report (\S+): attempt (\d+) has (\d+) pages")


class RecoveryStep:
    """Kills a worker and judges how its jobs recover."""

    def __init__(
        self, service: Service, http_steps: HttpSteps, screen: Screen, verdict: Verdict
    ) -> None:
        self._service = service
        self._http = http_steps
        self._screen = screen
        self._verdict = verdict
        self.victim = ""
        self.killed_at = 0.0
        self._pages = 0
        """The pages of the followed report that the client saw before the kill."""

    async def run(self) -> None:
        screen, ada = self._screen, self._http.ada
        screen.title("5  Jobs survive a killed worker")
        screen.say(f"Ada requests {REPORTS} reports of {PAGES} pages and follows the first one.")
        locations = []
        for n in range(REPORTS):
            locations.append(await ada.submit(f"Part {n}", PAGES, APIS[n % 2]))
            await asyncio.sleep(0.05)  # otherwise one worker claims all of them
        seen = await self._follow_and_kill(locations[0])
        self._judge_stream(seen)
        jobs = [await self._end_of(location) for location in locations]
        self._judge_recovery(jobs)

    async def _follow_and_kill(self, location: str) -> list[Event]:
        """Return the events of a job; kill its worker while they arrive."""
        seen: list[Event] = []
        id_ = location.rpartition("/")[2]
        async for event in self._http.follow(location, "api-1"):
            seen.append(event)
            self._pages = self._pages if self.victim else round(event.part * PAGES)
            if not self.victim and self._pages >= BEFORE_KILL:
                self.victim = await self._worker_of(id_)
                pid = self._service.pid(self.victim)
                self._screen.say(
                    f"Now {self.victim}, which runs that job, is killed (kill -9 {pid})."
                )
                self._service.kill(self.victim)
                self.killed_at = self._service.now()
        return seen

    async def _worker_of(self, id_: str) -> str:
        """Return the worker that runs a job. Its log may arrive later than the job's events."""
        [name] = await self._service.until(
            lambda: [line.process for line, job, *_ in self._begun() if job == id_],
            f"a log line of job {id_}",
        )
        return name

    async def _end_of(self, location: str) -> dict[str, Any]:
        reply = await self._http.ada.ask("GET", location, "api-2", Prefer="wait=20")
        return reply.json()

    def _begun(self) -> list[tuple[Logged, str, int, int]]:
        """Return each attempt that has begun: its line, job, number, and saved pages."""
        return [
            (line, match[1], int(match[2]), int(match[3]))
            for line in self._service.lines(BEGUN)
            if (match := BEGUN.search(line.text))
        ]

    def _judge_stream(self, seen: list[Event]) -> None:
        judge, last = self._verdict.judge, seen[-1]
        attempt, id_ = last.job["attempt"], last.job["id"]
        went_on = rising(seen) and last.kind == "result" and attempt <= 2
        judge(f"the event stream continues and never goes back: attempt {attempt}", kept=went_on)
        if attempt == 1:
            # Only its own worker can end the first attempt. On a busy machine that can happen
            # before the kill.
            judge("the job had finished before the kill", kept=True)
            return
        again = [pages for _, job, number, pages in self._begun() if (job, number) == (id_, 2)]
        kept = len(again) == 1 and again[0] >= self._pages
        saved = ", ".join(map(str, again)) or "none"
        judge(f"it resumes at its checkpoint: {saved} pages saved, {self._pages} seen", kept=kept)

    def _judge_recovery(self, jobs: list[dict[str, Any]]) -> None:
        judge, note = self._verdict.judge, self._verdict.note
        mine = {job["id"] for job in jobs}
        begun = [attempt for attempt in self._begun() if attempt[1] in mine]
        lost = {job for line, job, *_ in begun if line.process == self.victim}
        again = {job: line for line, job, number, _ in begun if number > 1}
        for name in WORKERS:
            took = sum(line.process == name for line in again.values())
            if took:
                self._screen.report(name, f"takes over {took} of its jobs")
        took = max((line.at for line in again.values()), default=self.killed_at) - self.killed_at
        promise = f"promised: ttl + 3 s = {RECOVERY:g} s"
        judge(f"lost jobs run again after {took:.2f} s ({promise})", kept=took <= RECOVERY)
        same = set(again) <= lost
        judge(f"no other job runs again: {len(again)} of the {len(lost)} it had started", kept=same)
        done = sum(job["state"] == "succeeded" for job in jobs)
        whole = all(job["result"] and job["result"]["pages"] == PAGES for job in jobs)
        judge(f"no report is lost: {done} of {REPORTS} succeed", kept=done == REPORTS and whole)
        note("time until lost jobs run again", f"{took:.2f} s", f"{RECOVERY:g} s")
        note("reports completed", str(done), str(REPORTS))
