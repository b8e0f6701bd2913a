"""Viewers: the people who look at the dashboard, and what each of them may do.

`Dashboard(auth=...)` takes a function of the ASGI scope that names the viewer. Without it, every
client that reaches the dashboard may look, and none may act.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tenure.core.safe_text import safe
from tenure.dashboard.answer import Refusal

__all__ = ["GUEST", "Auth", "BasicAuth", "Viewer", "viewer_of"]

log = logging.getLogger("tenure.dashboard")

Scope: TypeAlias = MutableMapping[str, Any]

_NAME_MAX: Final = 200


class Viewer(Struct, frozen=True):
    """A person who was let in."""

    name: str
    """For the audit log and the page."""
    may_act: bool = True
    """Pause, resume, trigger, cancel, requeue, delete, release."""
    may_reveal: bool = False
    """See arguments, results, checkpoints and headers of jobs; each look is logged."""
    may_see_owners: bool = False
    """See and search the owners of jobs that came over HTTP."""


Auth: TypeAlias = Callable[[Scope], Awaitable[Viewer | str | None] | Viewer | str | None]
"""Names the viewer of a request by its ASGI scope; None refuses it. A name is `Viewer(name)`."""

GUEST: Final = Viewer("", may_act=False)
"""Everybody, if there is no `auth`: may look, and no more."""


class BasicAuth:
    """An `auth` for one name and one password, which browsers ask for.

    Use it over HTTPS or on this machine only: browsers send the password with each request.
    """

    challenge = 'Basic realm="Tenure", charset="UTF-8"'

    def __init__(self, viewer: Viewer, password: str) -> None:
        self._viewer = viewer
        self._expected = _digest(viewer.name, password)

    def __call__(self, scope: Scope) -> Viewer | None:
        """Return the viewer if the request has the right name and password."""
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, credentials = (values[0] if len(values) == 1 else b"").partition(b" ")
        if scheme.lower() != b"basic":
            return None
        try:
            text = base64.b64decode(credentials.strip(), validate=True).decode()
        except ValueError:
            return None
        name, _, password = text.partition(":")
        matches = hmac.compare_digest(_digest(name, password), self._expected)
        return self._viewer if matches else None


def _digest(name: str, password: str) -> bytes:
    """Return texts of any length as bytes of one length, which are compared in constant time."""
    return hashlib.sha256(repr((name, password)).encode()).digest()


async def viewer_of(auth: Auth | None, scope: Scope) -> Viewer:
    """Return the viewer of a request. Raises Refusal if there is none, or if `auth` fails."""
    if auth is None:
        return GUEST
    try:
        answer: object = auth(scope)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception:
        # What it raises may name users or contain secrets, so the client gets none of it.
        log.exception("auth= of the dashboard failed; the request was refused")
        raise Refusal(500, "The sign-in of this dashboard failed. Its log says why.") from None
    viewer = Viewer(answer) if isinstance(answer, str) else answer
    if isinstance(viewer, Viewer) and viewer.name:
        return replace(viewer, name=safe(viewer.name)[:_NAME_MAX])
    if viewer is not None:
        kind = type(answer).__name__
        log.error("auth= of the dashboard returned a %s: return a Viewer, a name or None", kind)
    challenge = getattr(auth, "challenge", None)
    headers = {"www-authenticate": challenge} if isinstance(challenge, str) else {}
    raise Refusal(401, "This dashboard does not know you. Sign in and try again.", headers=headers)
