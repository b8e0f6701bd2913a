"""Keeps pages of other origins away: headers of answers, and checks of requests.

A browser sends a viewer's cookies and passwords with the requests of any page. So an action needs
three things that a foreign page cannot send together: the right origin, a JSON body, and the token
of the session. Reads are refused to foreign pages too: they could count streams or measure times.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from tenure.dashboard.answer import Refusal
from tenure.dashboard.viewer import Viewer

__all__ = ["HEADERS", "Tokens", "check_host", "check_origin"]

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        # The page has a <base>, as it may be mounted anywhere below its origin.
        "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""The headers of every answer; assets may be kept, and are checked again at each use."""

_FOREIGN: Final = "This request comes from a page of another site, so it was refused."


def check_host(headers: Mapping[str, str], hosts: Sequence[str] | None) -> None:
    """Raise Refusal for a name that is not one of `hosts`; None: any name.

    Without it, a foreign page can give its own name the address of this machine (DNS rebinding),
    and is then of the same origin.
    """
    if hosts is None:
        return
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        host = None
    if host not in hosts:
        detail = f"This dashboard answers to {', '.join(hosts)} only. Open it under that name."
        raise Refusal(421, detail)


def check_origin(headers: Mapping[str, str], *, acts: bool) -> None:
    """Raise Refusal for a request from a page of another origin.

    Browsers always send `Origin` or `Sec-Fetch-Site` with a POST; without either it is refused.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        # Not even `same-site`: another service of this domain may be less careful.
        is_own = site == "same-origin" or (site == "none" and not acts)
        if not is_own:
            raise Refusal(403, _FOREIGN)
        return
    origin = headers.get("origin")
    if origin is None:
        if acts:
            raise Refusal(403, "This request does not say from which page it comes.")
        return
    # Without a host, the opaque origin "null" would be equal to it.
    host = headers.get("host", "").lower()
    if not host or origin.lower() not in (f"http://{host}", f"https://{host}"):
        raise Refusal(403, _FOREIGN)


class Tokens:
    """The token that each action must carry: of this process, and of one viewer."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def of(self, viewer: Viewer) -> str:
        """Return the token of a viewer."""
        return hmac.new(self._secret, viewer.name.encode(), hashlib.sha256).hexdigest()

    def check(self, viewer: Viewer, headers: Mapping[str, str]) -> None:
        """Raise Refusal unless the request carries the viewer's token."""
        token = headers.get("x-tenure-token", "")
        if not hmac.compare_digest(token.encode(), self.of(viewer).encode()):
            detail = "The session of this page is over. Reload the page and try again."
            raise Refusal(403, detail, more={"is_stale_token": True})
