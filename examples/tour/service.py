"""The example service in the tour: two APIs, three workers, and their logs."""

import re
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tenure import Tenure
from tour.processes import Processes
from tour.screen import Screen

REPORTS = Path(__file__).parents[1] / "reports"
TIED = Path(__file__).with_name("tied.py")
APIS = ("api-1", "api-2")
WORKERS = ("worker-1", "worker-2", "worker-3")
TTL = 3.0
# Time, logger, request id if a request led to the line, text: as examples/reports writes it.
LINE = re.compile(r"(\d\d:\d\d:\d\d\.\d{3}) \w[\w.]*(?: \[[^\]]*\])?: (.*)")
STARTED = re.compile("Application startup complete|takes jobs from")
A_DAY = 86_400.0


@dataclass(frozen=True)
class Logged:
    """A log line of one process."""

    process: str
    at: float
    """Seconds since the service was started."""
    text: str


class Service(Processes):
    """Runs examples/reports as several processes on one SQLite file."""

    def __init__(self, folder: Path, screen: Screen) -> None:
        super().__init__(screen.move)
        self._screen = screen
        self.log: list[Logged] = []
        self._url = f"sqlite:///{folder / 'reports.db'}"
        self._urls: dict[str, str] = {}
        self._began = seconds_of_day(f"{datetime.now().astimezone():%H:%M:%S.%f}")

    async def start(self, *names: str) -> None:
        """Start these processes and wait until they serve or work."""
        before = len(self.log)
        environment = {
            "TENURE_URL": self._url,
            "TENURE_REPLICA_TTL": str(TTL),  # short, so that lost jobs run again soon
            "REPORTS_WORKER": "no",
            "REPORTS_DIGEST": "* * * * * *",  # each second
            "REPORTS_RATES": "1s",
        }
        for name in names:
            role = ("serve", "--port", "0") if name in APIS else ("worker",)
            # -P: the folder of TIED must not be on the import path.
            program = (sys.executable, "-P", str(TIED), str(REPORTS))
            await self.spawn(name, *program, *role, env=environment)
        await self.until(
            lambda: len(self._started(before)) == len(names),
            "the processes to start",
            within=40,
            progress=lambda: self._show_start(len(self._started(before)), len(names)),
        )

    def _started(self, since: int) -> set[str]:
        return {line.process for line in self.lines(STARTED, since)}

    def _show_start(self, started: int, of: int) -> str:
        text = f"{self._screen.bar(started / of, 10)} {started} of {of} processes have started"
        return self._screen.paint(text, "dim")

    def hear(self, name: str, line: str) -> None:
        if served := re.search(r"served on (http://\S+)", line):
            self._urls[name] = served[1]
        if match := LINE.fullmatch(line):
            self.log.append(Logged(name, self._since(seconds_of_day(match[1])), match[2]))

    def url(self, name: str) -> str:
        return self._urls[name]

    def app(self) -> Tenure:
        """Return an app on the store of the service; the caller opens it."""
        return Tenure(self._url)

    def lines(self, pattern: re.Pattern[str], since: int = 0) -> list[Logged]:
        """Return the lines of all logs that contain a pattern."""
        return [line for line in self.log[since:] if pattern.search(line.text)]

    def now(self) -> float:
        return self._since(seconds_of_day(f"{datetime.now().astimezone():%H:%M:%S.%f}"))

    def _since(self, second: float) -> float:
        return (second - self._began) % A_DAY  # correct across midnight


def seconds_of_day(text: str) -> float:
    hours, minutes, seconds = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
