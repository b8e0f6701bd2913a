"""A resource outside the store that checks fences, built as the docs recommend."""

import fcntl
import json
from pathlib import Path


class FencedSink:
    """A file that refuses every write under a fence lower than one it has seen."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def write(self, fence: int, text: str) -> bool:
        """Say whether the write was taken."""
        with self._path.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            seen = json.loads(file.read() or "[0]")[0]
            if fence < seen:
                return False
            file.seek(0)
            file.truncate()
            json.dump([fence, text], file)
            return True

    def text(self) -> str:
        """Return what was written last."""
        return str(json.loads(self._path.read_text())[1])
