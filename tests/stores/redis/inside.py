"""A look at what the Redis store keeps, past the store."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median
from typing import Any

import redis

from tenure.core.clock import Clock, SystemClock
from tenure.stores.redis import RedisStore
from tenure.stores.redis.scripts import SCRIPTS
from tests.contract.job_calls import id_of
from tests.rig.fixtures import Endpoint
from tests.rig.servers import Valkey

__all__ = ["Looker", "Open", "stores_of"]

Open = Callable[..., Awaitable[RedisStore]]

# What the time of other scripts is compared with: the machine may be slow or busy, for both alike.
_UNIT = """
for n = 1, 5000 do
  redis.call('HSET', KEYS[1], n, n)
end
return redis.call('DEL', KEYS[1])
"""


@asynccontextmanager
async def stores_of(namespace: str) -> AsyncIterator[Open]:
    """Open stores that are closed after the test; their errors are ignored."""
    noise: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: noise.append(context))
    async with AsyncExitStack() as stack:

        async def make(url: str, clock: Clock | None = None) -> RedisStore:
            store = RedisStore(url, namespace=namespace, clock=clock or SystemClock())
            stack.push_async_callback(store.close)
            await store.open()
            return store

        yield make
    assert not noise


class Looker:
    """Looks at a namespace past the store."""

    def __init__(self, server: Endpoint | Valkey, namespace: str) -> None:
        self.redis = redis.Redis.from_url(server.url, decode_responses=True)
        self.tag = f"{{tenure:{namespace}}}:"

    def key_names(self) -> set[str]:
        return {key.removeprefix(self.tag) for key in self.redis.scan_iter(f"{self.tag}*")}

    def job(self, name: str) -> str:
        """Return the name of a key of the jobs."""
        return f"{self.tag}job:{name}"

    def timer(self, name: str) -> str:
        """Return the name of a key of the schedules."""
        return f"{self.tag}timer:{name}"

    def listeners(self, kind: str) -> int:
        return self.redis.pubsub_numsub(f"{self.tag}bell:{kind}")[0][1]

    def spoil(self, number: int, record: str = "no record at all, for sure") -> None:
        assert self.redis.hset(self.job("state"), id_of(number), record) == 0

    def written(self) -> int:
        """Return the size of the append-only file."""
        return self.redis.info("persistence")["aof_current_size"]

    def sent(self) -> int:
        """Return how many bytes the server has sent to all clients."""
        return self.redis.info("stats")["total_net_output_bytes"]

    def worked(self) -> float:
        """Return the seconds of processor time that the server has spent on commands."""
        cpu = self.redis.info("cpu")
        return cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"]

    def work_unit(self) -> float:
        """Let the server write 5,000 small fields; return the processor time that it took."""
        before = self.worked()
        self.redis.eval(_UNIT, 1, f"{self.tag}unit")
        return self.worked() - before

    def commands(self) -> dict[str, int]:
        """Return how often each command was called, by clients or scripts, since the last look."""
        stats = self.redis.info("commandstats")
        self.redis.config_resetstat()
        ours = ("config|resetstat", "info", "time")
        calls = {name.removeprefix("cmdstat_"): command["calls"] for name, command in stats.items()}
        return {name: number for name, number in calls.items() if name not in ours}

    def log_scripts(self) -> None:
        """Remember from now on how long each script takes."""
        self.redis.slowlog_reset()
        self.redis.config_set("slowlog-max-len", 100_000)
        self.redis.config_set("slowlog-log-slower-than", 0)

    def script_times(self) -> dict[str, float]:
        """Return how long each script took since then, in units of work (see `work_unit`).

        The median, because the system may put the server to sleep at any time.
        """
        names = {script.sha: script.name for script in SCRIPTS.values()}
        took = defaultdict(list)
        for line in self.redis.slowlog_get(100_000):
            match line["command"].split():
                case [b"EVALSHA", sha, *_]:
                    took[names[sha]].append(line["duration"])
                case [b"EVAL", *_]:
                    took["unit"].append(line["duration"])
        unit = median(took.pop("unit"))
        return {name: median(times) / unit for name, times in took.items()}
