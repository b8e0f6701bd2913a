"""`tenure dashboard`: serves the dashboard of a store or an app, on this machine by default."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click
from rich.text import Text

from tenure.app import Tenure
from tenure.cli.target import Target, place, store_command
from tenure.errors import ConfigError
from tenure.supervisor.app_finder import load_app
from tenure.supervisor.log_setup import set_up_logging

if TYPE_CHECKING:
    from tenure.dashboard import BasicAuth

__all__ = ["dashboard"]

_USER: Final = "TENURE_DASHBOARD_USER"
_PASSWORD: Final = "TENURE_DASHBOARD_PASSWORD"  # noqa: S105 - the name of a variable
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
# Open streams end by themselves; a browser that is slow must not keep this command.
_SHUTDOWN_SECONDS: Final = 2


@click.command(
    epilog=f"""\b
Examples:
  tenure dashboard                              the store of $TENURE_URL
  tenure dashboard redis://cache/0
  tenure dashboard shop.tasks:app --port 9000
  {_USER}=ann {_PASSWORD}=... tenure dashboard shop.tasks:app"""
)
@click.argument("what", metavar="[URL|MODULE:APP]", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8080,
    show_default=True,
    help="The port to listen at; 0: any free one.",
)
@click.option("--read-only", is_flag=True, help="Allow no actions, also after the sign-in.")
@click.option(
    "--reveal",
    is_flag=True,
    help="After the sign-in, show arguments, results and owners of jobs; each look is logged.",
)
@click.option(
    "--trace-url",
    metavar="URL",
    help="Where traces are, such as 'https://traces/{trace_id}'.",
)
@click.option("--title", help="What the pages call the app [default: the namespace].")
@click.option(
    "--root-path",
    default="",
    metavar="PATH",
    help="The path under which a proxy serves it, such as /tenure.",
)
@store_command
def dashboard(
    target: Target,
    what: str | None,
    *,
    host: str,
    port: int,
    read_only: bool,
    reveal: bool,
    trace_url: str | None,
    title: str | None,
    root_path: str,
) -> None:
    """Serve pages about jobs, queues, timers, locks and replicas until Ctrl-C.

    Without a sign-in it is read-only and answers to this machine only. For actions, set
    TENURE_DASHBOARD_USER and TENURE_DASHBOARD_PASSWORD; put TLS in front of it before you open it
    to other machines. To use the sign-in of your service, mount tenure.dashboard.Dashboard there.
    """
    from tenure.dashboard import Dashboard  # noqa: PLC0415 - other commands start faster

    server = _server()
    auth = _auth(may_act=not read_only, may_reveal=reveal)
    if auth is None and not _is_local(host):
        raise click.UsageError(
            f"--host {host} can be reached from other machines, so the dashboard needs a sign-in: "
            f"set {_USER} and {_PASSWORD}."
        )
    set_up_logging(None, None)
    app = _app(target, what)
    pages = Dashboard(
        app,
        auth=auth,
        trace_url=trace_url,
        title=title,
        # Without a sign-in a page of another site could rename this machine and read everything.
        hosts=(*_LOCAL, host.lower()) if auth is None else None,
    )
    with _listening(host, port) as listener:
        _announce(target, app, listener, root_path, auth)
        config = server.Config(
            pages,
            log_level="warning",
            access_log=False,
            server_header=False,
            root_path=root_path.rstrip("/"),
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        with suppress(KeyboardInterrupt):  # raised anew once the server has closed everything
            server.Server(config).run(sockets=[listener])


def _server() -> Any:
    """Return the package that serves it. Raises ConfigError if it is not installed."""
    try:
        import uvicorn  # noqa: PLC0415 - an extra package
    except ModuleNotFoundError:
        msg = "tenure dashboard needs an extra package: pip install 'tenure[dashboard]'."
        raise ConfigError(msg) from None
    return uvicorn


def _auth(*, may_act: bool, may_reveal: bool) -> BasicAuth | None:
    """Return the sign-in that the environment describes; None if it has none."""
    user, password = os.environ.get(_USER, ""), os.environ.get(_PASSWORD, "")
    if not user and not password:
        if may_reveal:
            raise click.UsageError(f"--reveal needs a sign-in: set {_USER} and {_PASSWORD}.")
        return None
    if not user or not password:
        raise click.UsageError(f"Set both {_USER} and {_PASSWORD}, or none of them.")
    from tenure.dashboard import BasicAuth, Viewer  # noqa: PLC0415 - as above

    viewer = Viewer(user, may_act=may_act, may_reveal=may_reveal, may_see_owners=may_reveal)
    return BasicAuth(viewer, password)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _app(target: Target, what: str | None) -> Tenure:
    """Return the app whose dashboard it is: one without tasks for the URL of a store."""
    if what is not None and "://" not in what:
        if target.source == "--url":
            raise click.UsageError("The app decides which store it uses: leave out --url.")
        return load_app(what)
    if what is not None:
        if target.source == "--url":
            raise click.UsageError("Give the URL once: as an argument or with --url.")
        target = Target(what, "argument", target.namespace, target.screen)
    # TENURE_REQUIRE, TENURE_SCOPE and TENURE_CONNECT are for services, not for operators.
    own: dict[str, Any] = {"require": "D", "scope": "process", "connect": "eager"}
    return Tenure(target.store(), namespace=target.namespace, migrate="check", **own)


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address. Raises ConfigError if that is not free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen()  # who reads the address may connect at once
    except OSError as error:
        listener.close()
        msg = (
            f"cannot listen at {host}:{port}: {error.strerror or error}. Choose another --port; 0 "
            "is any free one."
        )
        raise ConfigError(msg) from None
    return listener


def _announce(
    target: Target,
    app: Tenure,
    listener: socket.socket,
    root_path: str,
    auth: BasicAuth | None,
) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}{root_path.rstrip('/')}/"
    target.screen.remark(f"{place(app.url)}, namespace {app.settings.namespace}")
    if app.traits.scope == "process":
        target.screen.remark("This store is visible to this process only, so it stays empty.")
    if auth is None:
        target.screen.remark(f"Read-only. For actions, set {_USER} and {_PASSWORD}.")
    document = {"store": app.url, "namespace": app.settings.namespace, "address": address}
    target.screen.answer(document, Text(address))
