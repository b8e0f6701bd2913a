"""The contestants of the job benchmark, and the second environment that two of them need."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bench.rig import ROOT, note, start_child

OLDER_REDIS = Path(sys.prefix) / "older-redis"
_PINS = ROOT / "bench" / "peers" / "older_redis.txt"


@dataclass(frozen=True)
class Contestant:
    """A library on a kind of store; `module` is its file in bench/peers."""

    name: str
    store: str
    module: str
    unsettled: str
    """A query that counts the unsettled jobs among {jobs}: SQL, or Lua on Redis."""
    jobs: int = 10_000
    singles: int = 2_000
    """How many of them are enqueued one by one if there is a bulk call."""
    handler: Literal["async", "sync"] = "async"
    keeps_results: bool = True
    has_bulk: bool = False
    needs_older_redis: bool = False
    python: str = sys.executable

    @property
    def label(self) -> str:
        return f"{self.name} on {self.store}"

    def start(self, role: str, url: str, *numbers: int) -> subprocess.Popen[str]:
        return start_child("bench.job_child", self.module, role, url, *numbers, python=self.python)


_TENURE = "return redis.call('ZCARD', '{{tenure:tenure}}:job:unfinished')"
_DRAMATIQ = "return redis.call('HLEN', 'dramatiq:default.msgs')"
_SAQ = "return redis.call('ZCARD', 'saq:default:incomplete')"
_ARQ = "return redis.call('ZCARD', 'arq:queue')"
# Never read, and read but not acknowledged; an acknowledged message stays in the stream.
_TASKIQ = "local g = redis.call('XINFO', 'GROUPS', 'taskiq')[1] return g[6] + g[12]"
_PROCRASTINATE = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

CONTESTANTS = [
    Contestant("tenure", "redis", "tenure", _TENURE, jobs=30_000, has_bulk=True),
    Contestant("dramatiq", "redis", "dramatiq", _DRAMATIQ, jobs=20_000,
               handler="sync", keeps_results=False),
    Contestant("dramatiq with results", "redis", "dramatiq_results", _DRAMATIQ, handler="sync"),
    Contestant("saq", "redis", "saq", _SAQ, needs_older_redis=True),
    Contestant("taskiq (streams)", "redis", "taskiq", _TASKIQ),
    Contestant("arq", "redis", "arq", _ARQ, needs_older_redis=True),
    Contestant("tenure", "postgres", "tenure", "SELECT count(*) FROM tenure.job",
               jobs=30_000, singles=1_000, has_bulk=True),
    Contestant("pgqueuer", "postgres", "pgqueuer", "SELECT count(*) FROM pgqueuer",
               jobs=30_000, singles=1_000, keeps_results=False, has_bulk=True),
    Contestant("procrastinate", "postgres", "procrastinate", _PROCRASTINATE,
               singles=1_000, keeps_results=False, has_bulk=True),
    Contestant("tenure", "sqlite", "tenure", "SELECT count(*) FROM tenure_live",
               jobs=30_000, singles=1_000, has_bulk=True),
    Contestant("huey", "sqlite", "huey", "SELECT {jobs} - count(*) FROM kv", handler="sync"),
    Contestant("tenure", "memory", "tenure", "", jobs=30_000),
]  # fmt: skip


def install_older_redis(contestants: list[Contestant]) -> list[Contestant]:
    """Return the contestants with their Pythons, without those that cannot be installed."""
    python = older_redis()
    if python is None:
        return [contestant for contestant in contestants if not contestant.needs_older_redis]
    return [
        replace(contestant, python=python) if contestant.needs_older_redis else contestant
        for contestant in contestants
    ]


def older_redis() -> str | None:
    """Return the Python of the second environment, created on first use; None if that fails."""
    python = OLDER_REDIS / "bin" / "python"
    stamp = OLDER_REDIS / "installed"
    digest = hashlib.sha256(_PINS.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        note(f"installing the peers that need an older redis-py into {OLDER_REDIS.name}")
        pip = [str(python), "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
        try:
            subprocess.run([sys.executable, "-m", "venv", str(OLDER_REDIS)], check=True)
            subprocess.run([*pip, "--require-hashes", "-r", str(_PINS)], check=True)
        except subprocess.CalledProcessError as error:
            note(f"left out, as they cannot be installed: {error}")
            return None
        stamp.write_text(digest)
    return str(python)
