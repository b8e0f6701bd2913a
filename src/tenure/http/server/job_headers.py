"""Headers of a request that its job gets: trace context, request id, and what you name.

Clients choose the values, so `JobHeaders` drops what is malformed or too long instead of refusing
the request. The standard of traces demands that as well. `request_id` is also what responses echo.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from tenure.core.jobs.headers import check_headers
from tenure.errors import ConfigError

__all__ = ["JOB_HEADERS", "REQUEST_ID", "JobHeaders", "request_id"]

REQUEST_ID: Final = "x-request-id"
JOB_HEADERS: Final = ("traceparent", "tracestate", REQUEST_ID)
"""What jobs keep of a request by default."""

_NAMES_MAX: Final = 10
# Together at most half of what a job may have: the rest is left to hooks.
_TOGETHER_MAX: Final = 2048

# https://www.w3.org/TR/trace-context/: version, trace id, parent id, flags. Ids of zeros mean none.
# Versions after 00 may append fields.
_TRACEPARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    r"(?P<more>-[\x21-\x7e]{1,100})?"
)
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,200}")
_VISIBLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,510}[\x21-\x7e])?")


def _is_traceparent(value: str) -> bool:
    match = _TRACEPARENT.fullmatch(value)
    return match is not None and not (match["version"] == "00" and match["more"])


def _is_request_id(value: str) -> bool:
    return _REQUEST_ID.fullmatch(value) is not None


def _is_visible(value: str) -> bool:
    return _VISIBLE.fullmatch(value) is not None


_FORMS: Final[Mapping[str, Callable[[str], bool]]] = {
    "traceparent": _is_traceparent,
    REQUEST_ID: _is_request_id,
}


class JobHeaders:
    """The names of the headers that a router copies from requests to jobs."""

    def __init__(self, names: Sequence[str], secret: Collection[str]) -> None:
        """Raise ConfigError for names that no job can have, and for those in `secret`."""
        if isinstance(names, str):
            msg = f"job_headers must be a list of names, not the text {names!r}."
            raise ConfigError(msg)
        self.names = tuple(dict.fromkeys(str(name).lower() for name in names))
        check_headers(dict.fromkeys(self.names, ""))
        if len(self.names) > _NAMES_MAX:
            msg = f"job_headers names {len(self.names)} headers, and jobs keep {_NAMES_MAX}."
            raise ConfigError(msg)
        if hidden := {*self.names} & {*secret}:
            msg = (
                f"job_headers={min(hidden)!r}: this header contains a secret of the client, so "
                "jobs do not store it."
            )
            raise ConfigError(msg)

    def of(self, request: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a request that its job gets."""
        kept: dict[str, str] = {}
        room = _TOGETHER_MAX
        for name in self.names:
            value = request.get(name)
            if value is None or not _FORMS.get(name, _is_visible)(value):
                continue
            room -= len(name) + len(value)
            if room < 0:
                break
            kept[name] = value
        if "traceparent" in self.names and "traceparent" not in kept:
            kept.pop("tracestate", None)  # it has no meaning without the other
        return kept


def request_id(request: Mapping[str, str]) -> str | None:
    """Return the `X-Request-Id` of a request; None if there is none, or a malformed one."""
    value = request.get(REQUEST_ID)
    return value if value is not None and _is_request_id(value) else None
