"""What an operator sees when something breaks: in the log, by `tenure ping` and by `doctor`."""

import asyncio
import re
from pathlib import Path

import pytest

from tenure.supervisor.health import ask_health
from tests.process.test_supervisor import supervised
from tests.process.workshop import Workshop
from tests.rig.processes import Child
from tests.rig.servers import Postgres, Valkey
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async


async def run_command(shop: Workshop, *words: object) -> tuple[int, str]:
    """Run a command of `tenure`; return its exit code and what it shows."""
    environment = {"TENURE_URL": shop.site.url, "TENURE_NAMESPACE": shop.site.namespace}
    command = shop.site.fleet.start("-m", "tenure", *map(str, words), env=environment)
    code = await shop.exited(command)
    return code, "\n".join([*command.noise, command.stderr])


async def logged(shop: Workshop, worker: Child, *patterns: str) -> None:
    """Wait until the log of a worker has a line for each pattern."""
    for pattern in patterns:
        await shop.until(
            lambda pattern=pattern: re.search(pattern, worker.stderr), f"{pattern!r} is logged"
        )


async def ready(health: Path, *, is_ready: bool = True) -> None:
    """Wait until a worker says that it is ready, or that it is not."""

    def has_answered() -> bool:
        try:
            status = ask_health(health, 5)
        except OSError:
            return False
        return status["ready"] is is_ready and status.get("last_beat_seconds_ago") is not None

    await wait_until_async(has_answered, SIZE.patience, f"it says ready: {is_ready}")


@pytest.mark.on("redis", "postgres")
async def test_an_outage_shows_in_the_log_and_by_every_command(
    shop: Workshop, server: Valkey | Postgres, tmp_path: Path
):
    health = tmp_path / "health"
    worker = supervised(shop, "--health", health)
    await ready(health)
    await asyncio.to_thread(server.kill)
    await logged(
        shop, worker, r"WARNING .* the store has failed the call \w+: the store .* cannot be"
    )
    await ready(health, is_ready=False)
    code, shown = await run_command(shop, "ping", "--health", health, "--ready")
    assert (code, "is not ready" in shown) == (1, True), shown
    assert (await run_command(shop, "ping", "--health", health))[0] == 0  # it lives
    code, shown = await run_command(shop, "doctor")
    assert code == 2
    assert re.search(r"error +connection .* Check that the server runs", shown)

    await asyncio.to_thread(server.start)
    await logged(shop, worker, r"INFO .* the store answers again, after \d+ failed")
    await ready(health)
    lines = worker.stderr.splitlines()
    # Once for each of the supervisor and its worker process, and perhaps for the time in which the
    # server started, and answered only some of their calls.
    assert sum("the store has failed" in line for line in lines) <= 4
