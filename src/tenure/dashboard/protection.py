"""Keeps pages of other origins away: headers of answers, and checks of requests.

A browser sends a viewer's cookies and passwords with the requests of any page. So an action needs
three things that a foreign page cannot send together: the right origin, a JSON body, and the token
of the session, which is signed with a key in a cookie of this browser. Reads are refused to foreign
pages too: they could count streams or measure times.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlsplit

from tenure.dashboard.answer import Refusal
from tenure.dashboard.viewer import Viewer

__all__ = ["HEADERS", "Browser", "check_host", "check_origin"]

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

_COOKIE: Final = "tenure-browser"
_KEY: Final = re.compile(r"[0-9a-f]{64}")
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


class Browser:
    """The key that a browser keeps in a cookie, and the tokens that it signs.

    A token is of one browser and one viewer. No process has to know the key of another one, so any
    replica of a service takes the actions of a page that came from any other.
    """

    def __init__(self, key: str, *, is_new: bool) -> None:
        self._key = key
        self._is_new = is_new

    @classmethod
    def of(cls, headers: Mapping[str, str], token: Callable[[], str]) -> Browser:
        """Return the browser that sent these headers; without a key it gets one from `token`."""
        for part in headers.get("cookie", "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == _COOKIE and _KEY.fullmatch(value):
                return cls(value, is_new=False)
        return cls(f"{token()}{token()}", is_new=True)

    def cookie(self, root: str, *, is_secure: bool) -> dict[str, str]:
        """Return the header that leaves a new key with the browser; none if it has one."""
        if not self._is_new:
            return {}
        secure = "; Secure" if is_secure else ""
        path = quote(f"{root}/")
        return {
            "set-cookie": f"{_COOKIE}={self._key}; Path={path}; HttpOnly; SameSite=Strict{secure}"
        }

    def token(self, viewer: Viewer) -> str:
        """Return what each action of this viewer must carry."""
        return hmac.new(self._key.encode(), viewer.name.encode(), hashlib.sha256).hexdigest()

    def check(self, viewer: Viewer, headers: Mapping[str, str]) -> None:
        """Raise Refusal unless the request carries the viewer's token."""
        token = headers.get("x-tenure-token", "")
        if not hmac.compare_digest(token.encode(), self.token(viewer).encode()):
            detail = (
                "The session of this page is over. Reload the page and try again. If that does "
                "not help, let this site keep cookies."
            )
            raise Refusal(403, detail, more={"is_stale_token": True})
