"""The files of the pages: the shell, scripts, styles. They are data of this package."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tenure.dashboard.answer import Answer, Refusal

__all__ = ["Assets"]

_STATIC: Final = Path(__file__).parent / "static"
_KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
}
_BASE: Final = '<base href="/">'
_PAGES: Final = frozenset({"jobs", "timers", "locks", "replicas", "events"})
_WITH_DETAILS: Final = frozenset({"jobs", "timers"})


class Assets:
    """Serves the files by names that are known beforehand: no path is ever put together."""

    def __init__(self, folder: Path = _STATIC) -> None:
        self._folder = folder

    @cached_property
    def _files(self) -> dict[str, Path]:
        return {
            path.relative_to(self._folder).as_posix(): path
            for path in self._folder.rglob("*")
            if path.suffix in _KINDS and path.is_file()
        }

    def file(self, name: str, if_none_match: str) -> Answer:
        """Return a file; status 304 if the client has it, by the value of If-None-Match."""
        path = self._files.get(name)
        if path is None:
            raise Refusal(404, "There is no such file.")
        body = path.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        # Kept, and checked again at each use: an upgrade shows at once.
        headers = {"etag": tag, "cache-control": "no-cache"}
        if tag in if_none_match:
            return Answer(status=304, kind=_KINDS[path.suffix], headers=headers)
        return Answer(kind=_KINDS[path.suffix], body=body, headers=headers)

    def shell(self, parts: Sequence[str], root: str) -> Answer:
        """Return the page for an address below `root`; status 404 for an unknown one."""
        path = self._files.get("index.html")
        if path is None:
            raise Refusal(404, "The pages of the dashboard are not installed.")
        base = escape(quote(f"{root}/"), quote=True)
        html = path.read_text(encoding="utf-8").replace(_BASE, f'<base href="{base}">', 1)
        status = 200 if _is_page(parts) else 404
        return Answer(status=status, kind=_KINDS[".html"], body=html.encode())


def _is_page(parts: Sequence[str]) -> bool:
    match [*parts]:
        case []:
            return True
        case [page]:
            return page in _PAGES
        case [page, _]:
            return page in _WITH_DETAILS
        case _:
            return False
