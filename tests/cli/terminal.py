"""The command as it looks on a terminal of 80 columns."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable


def on_a_terminal(
    *arguments: str,
    answer: str = "",
    when: tuple[str, Callable[[], object]] | None = None,
    **environment: str,
) -> str:
    """Run the command on a terminal, type the answer when it asks; return what appears.

    `when` is a text and what to do as soon as it appears.
    """
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "tenure", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    ) as process:
        os.close(slave)
        seen = b""
        while piece := _read(master):
            seen += piece
            if when is not None and when[0].encode() in seen:
                when[1]()
                when = None
            if answer and b"[y/N]" in seen:
                os.write(master, answer.encode())
                answer = ""
        process.wait(20)
    os.close(master)
    return seen.decode().replace("\r\n", "\n")


def plain(seen: str) -> str:
    """Return what stays on the terminal, without colours and lines that were wiped away."""
    lasting = re.sub(r"\r?\x1b\[2K[^\n\x1b]*(?=\r\x1b\[2K)", "", seen)
    return re.sub(r"\r|\x1b\[[\d;]*[mK]", "", lasting)


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""
