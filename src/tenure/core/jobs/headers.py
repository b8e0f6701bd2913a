"""Headers of jobs: short texts that travel with a job, such as a trace context or a request id.

They are no arguments: the handler's signature does not name them. Every attempt of a job sees the
same headers. `check_headers` guards all ways in, so that each store can keep them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tenure.errors import ConfigError

__all__ = ["HEADERS_MAX", "HEADERS_SIZE_MAX", "check_headers"]

HEADERS_MAX: Final = 20
"""The most headers of a job."""
HEADERS_SIZE_MAX: Final = 4096
"""The most bytes of all names and values together: each claim of the job reads them."""

_NAME = re.compile(r"[a-z0-9._-]+")


def check_headers(headers: object) -> dict[str, str]:
    """Return a copy of headers that every store can keep. Raises ConfigError otherwise.

    Messages name headers and never show a value, which may be a secret.
    """
    if not isinstance(headers, Mapping):
        msg = f"headers must be a mapping of text to text, not {type(headers).__name__}."
        raise ConfigError(msg)
    if len(headers) > HEADERS_MAX:
        msg = f"a job has at most {HEADERS_MAX} headers, not {len(headers)}."
        raise ConfigError(msg)
    taken = sum(_size(name, value) for name, value in headers.items())
    if taken > HEADERS_SIZE_MAX:
        msg = (
            f"these headers take {taken:,} bytes, and a job has at most {HEADERS_SIZE_MAX:,}. "
            "Store the data elsewhere, and its id in a header."
        )
        raise ConfigError(msg)
    return dict(headers)


def _size(name: object, value: object) -> int:
    """Return how many bytes a header takes. Raises ConfigError if it cannot be one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        msg = (
            f"header name {name!r} must consist of lower-case letters, digits, '-', '_' and '.', "
            "such as 'x-tenant'."
        )
        raise ConfigError(msg)
    if not isinstance(value, str):
        msg = f"header {name!r} must be text, not {type(value).__name__}."
        raise ConfigError(msg)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        size = -1
    if size < 0 or "\0" in value:  # PostgreSQL cannot store NUL
        msg = f"header {name!r} contains a NUL or a lone surrogate, which stores cannot keep."
        raise ConfigError(msg)
    return len(name) + size
