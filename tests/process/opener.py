"""Opens a store together with others: python -m tests.process.opener URL NAMESPACE

Everything slow is done before the instant the test names, so that all openings fall together.
"""

import asyncio
import sys
import time

from tenure import Tenure
from tests.process.orders import boot
from tests.rig.stdio import hear, tell


def main(url: str, namespace: str) -> None:
    """Open at the agreed instant."""
    app = Tenure(url, namespace=namespace)  # imports the driver
    tell("ready")
    time.sleep(max(0.0, float(hear()) - boot()))
    asyncio.run(use(app))


async def use(app: Tenure) -> None:
    """Open, and show that the store works."""
    async with app, app.lock("first") as hold:
        tell("opened", fence=hold.fence)


if __name__ == "__main__":
    main(*sys.argv[1:])
