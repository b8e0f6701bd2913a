"""Serve the reports, or only work for them.

python examples/reports                the API on port 8000, with a worker inside
python examples/reports --port 8001    the same beside it: they share everything
python examples/reports worker         a worker alone
"""

import argparse
import asyncio
import errno
import logging
import socket
import sys
from contextlib import suppress

import uvicorn
from service import api, app

PAGES = """\
Reports are served on {url} - Ctrl-C ends it.

  {url}/docs
      every route, to try out: press Authorize and give ada-token, or bob-token

  Submit a report. The answer is 202, with its address in Location:
      curl -i {url}/reports -H 'Authorization: Bearer ada-token' \\
           -H 'Content-Type: application/json' -d '{{"title": "May", "pages": 50}}'

  What became of it, and of all others of Ada's:
      curl {url}/reports/jobs -H 'Authorization: Bearer ada-token'

  With the address of one: follow its pages, cancel it, fetch the report:
      curl -N {url}/reports/jobs/ID/events -H 'Authorization: Bearer ada-token'
      curl -X DELETE {url}/reports/jobs/ID -H 'Authorization: Bearer ada-token'
      curl {url}/reports/jobs/ID/result -H 'Authorization: Bearer ada-token'
"""


def main() -> None:
    given = arguments()
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stdout,
        format="%(asctime)s.%(msecs)03d %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    with suppress(KeyboardInterrupt):  # how uvicorn ends after Ctrl-C, when all is closed
        if given.what == "worker":
            asyncio.run(app.run_worker())
        else:
            serve(given.port)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reports", description="Reports over HTTP.")
    parser.add_argument("what", nargs="?", choices=["serve", "worker"], default="serve")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any that is free")
    return parser.parse_args()


def serve(port: int) -> None:
    with bound(port) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        print(PAGES.format(url=url), flush=True)
        # Who follows a job when the service stops is cut off after 2 s, and can resume elsewhere.
        # uvicorn would show where it was cut.
        logging.getLogger("uvicorn.error").addFilter(lambda record: not was_cut_off(record))
        config = uvicorn.Config(api, log_config=None, timeout_graceful_shutdown=2)
        uvicorn.Server(config).run(sockets=[listening])


def was_cut_off(record: logging.LogRecord) -> bool:
    return bool(record.exc_info) and isinstance(record.exc_info[1], asyncio.CancelledError)


def bound(port: int) -> socket.socket:
    """Return the socket to serve on; taken before anything is started."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen()  # so that the first request waits while the service starts
    except (OSError, OverflowError) as error:
        listening.close()
        if getattr(error, "errno", None) != errno.EADDRINUSE:
            sys.exit(f"reports: cannot serve on port {port}: {error}")
        sys.exit(f"reports: port {port} is taken. Give another one: make run PORT={port + 1}")
    return listening


if __name__ == "__main__":
    main()
