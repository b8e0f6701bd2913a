"""Opens a store together with others: python -m tests.process.opener URL NAMESPACE

Everything slow is done before the instant the test names, so that all openings fall together.
"""

import asyncio
import sys
import time

from tenure import Tenure
from tests.process.orders import boot
from tests.rig.telling import hear, tell


async def main(url: str, namespace: str) -> None:
    """Open at the agreed instant, and show that the store works."""
    app = Tenure(url, namespace=namespace)  # imports the driver
    tell("ready")
    time.sleep(max(0.0, float(hear()) - boot()))
    async with app, app.lock("first") as hold:
        tell("opened", fence=hold.fence)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
