"""The Lua scripts: one per atomic operation, put together as lua/prelude.lua describes."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files

__all__ = ["ACQUIRE", "LIST", "MARK", "PRUNE", "RELEASE", "RENEW", "Script"]

_FOLDER = files("tenure.stores.redis") / "lua"


class Script:
    """A script and the name under which servers keep it."""

    def __init__(self, name: str) -> None:
        self.name = name
        parts = "prelude", f"{name}.alone", "crowd", f"{name}.crowd"
        self.text = b"".join((_FOLDER / f"{part}.lua").read_bytes() for part in parts)
        self.sha = sha1(self.text, usedforsecurity=False).hexdigest().encode()


ACQUIRE = Script("acquire")
RENEW = Script("renew")
RELEASE = Script("release")
LIST = Script("list")
MARK = Script("mark")
PRUNE = Script("prune")
