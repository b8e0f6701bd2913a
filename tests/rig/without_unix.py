"""Removes what Python on Windows does not have. Imported first, before anything of Tenure.

This shows what needs Unix. It does not show that the rest works on Windows.
"""

import asyncio
import faulthandler
import os
import select
import shutil
import signal
import socket
import sys
import time
from types import SimpleNamespace
from typing import Any

MISSING: dict[Any, tuple[str, ...]] = {
    signal: (
        *("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGCONT", "SIGALRM", "SIGCHLD"),
        *("SIGPIPE", "SIGQUIT", "SIGVTALRM", "pthread_sigmask", "pthread_kill", "setitimer"),
    ),
    os: (
        *("fork", "killpg", "getpgid", "setsid", "getsid", "getuid", "geteuid", "getgid"),
        *("register_at_fork", "memfd_create", "pidfd_open", "sched_getaffinity", "statvfs"),
        *("pread", "pwrite", "uname", "getloadavg", "wait4", "fchmod", "fchown", "mkfifo"),
    ),
    socket: ("AF_UNIX",),
    time: ("clock_gettime", "CLOCK_BOOTTIME", "CLOCK_MONOTONIC"),
    faulthandler: ("register", "unregister"),
    select: ("poll",),
}
MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline")


def _not_implemented(*_: object) -> None:
    raise NotImplementedError


# On Windows it is made of two sockets of another kind; asyncio needs it.
_make_pair, _UNIX = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda *_: _make_pair(_UNIX)

# Windows has this one, made of something else.
_statvfs = os.statvfs
shutil.disk_usage = lambda path: SimpleNamespace(
    free=_statvfs(path).f_bavail * _statvfs(path).f_frsize
)

for module, names in MISSING.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
for name in MODULES:
    sys.modules[name] = None  # type: ignore[assignment] - so that an import of it fails
asyncio.SelectorEventLoop.add_signal_handler = _not_implemented
