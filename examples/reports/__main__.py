"""Run the example service, or only a worker for it.

python examples/reports                the API on port 8000, with a worker in the same process
python examples/reports --port 8001    a second replica on the same store
python examples/reports worker         only a worker
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

from tenure.logs import JobFields

PAGES = """\
Reports are served on {url} - Ctrl-C stops it.

  {url}/dashboard
      see jobs, timers and workers while you try the rest

  {url}/docs
      try every route: press Authorize and enter ada-token or bob-token

  Submit a report. The answer is 202, and Location has the path of the job:
      curl -i {url}/reports -H 'Authorization: Bearer ada-token' \\
           -H 'Content-Type: application/json' -d '{{"title": "May", "pages": 50}}'

  With a header of yours, one word finds the request, its job and their log lines:
      curl {url}/reports -H 'X-Request-Id: r-81' -H 'Authorization: Bearer ada-token' \\
           -H 'Content-Type: application/json' -d '{{"title": "June", "pages": 5}}'

  List Ada's jobs:
      curl {url}/reports/jobs -H 'Authorization: Bearer ada-token'

  Follow a job, cancel it, or fetch its report, with its ID from the list:
      curl -N {url}/reports/jobs/ID/events -H 'Authorization: Bearer ada-token'
      curl -X DELETE {url}/reports/jobs/ID -H 'Authorization: Bearer ada-token'
      curl {url}/reports/jobs/ID/result -H 'Authorization: Bearer ada-token'
"""


def main() -> None:
    options = arguments()
    set_up_logging()
    with suppress(KeyboardInterrupt):  # uvicorn raises it after Ctrl-C, when everything is closed
        if options.what == "worker":
            asyncio.run(app.run_worker())
        else:
            serve(options.port)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reports", description="Reports over HTTP.")
    parser.add_argument("what", nargs="?", choices=["serve", "worker"], default="serve")
    parser.add_argument("--port", type=int, default=8000, help="0 picks a free port")
    return parser.parse_args()


def set_up_logging() -> None:
    stdout = logging.StreamHandler(sys.stdout)
    # Names the running job, and the request that it came from, in what its handler logs.
    stdout.addFilter(JobFields())
    line = "%(asctime)s.%(msecs)03d %(name)s [%(request_id)s]: %(message)s"
    stdout.setFormatter(logging.Formatter(line, "%H:%M:%S", defaults={"request_id": "-"}))
    logging.basicConfig(level=logging.INFO, handlers=[stdout])


def serve(port: int) -> None:
    with bound(port) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        print(PAGES.format(url=url), flush=True)
        # A client that follows a job is disconnected 2 s after the service stops, and can resume
        # at another replica. uvicorn would log a traceback for it.
        logging.getLogger("uvicorn.error").addFilter(lambda record: not was_disconnected(record))
        config = uvicorn.Config(api, log_config=None, timeout_graceful_shutdown=2)
        uvicorn.Server(config).run(sockets=[listening])


def was_disconnected(record: logging.LogRecord) -> bool:
    return bool(record.exc_info) and isinstance(record.exc_info[1], asyncio.CancelledError)


def bound(port: int) -> socket.socket:
    """Return the socket to serve on; bound before anything else starts."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen()  # the first request then waits until the service has started
    except (OSError, OverflowError) as error:
        listening.close()
        if getattr(error, "errno", None) != errno.EADDRINUSE:
            sys.exit(f"reports: cannot serve on port {port}: {error}")
        sys.exit(f"reports: port {port} is taken. Use another port: make run PORT={port + 1}")
    return listening


if __name__ == "__main__":
    main()
