"""Private real servers: child processes on loopback ports, with their data in temporary folders.

    with Valkey() as server:
        client = redis.asyncio.Redis.from_url(server.url)

Every server can be stopped, killed, paused, resumed and restarted with the same port and the same
data. No server outlives the process that made it.
"""

from tests.rig.binaries import find_postgres, find_valkey
from tests.rig.servers.postgres import Postgres
from tests.rig.servers.server import Server, ServerFailedError
from tests.rig.servers.sockets import free_port
from tests.rig.servers.valkey import Valkey

__all__ = [
    "Postgres",
    "Server",
    "ServerFailedError",
    "Valkey",
    "find_postgres",
    "find_valkey",
    "free_port",
]
