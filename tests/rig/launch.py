"""Turn into another program that dies together with the process that asked for it.

Run as a script: `python launch.py IDENTITY PARENT_PID PROGRAM [ARGUMENT ...]`. It ends in `exec`,
so the pid of this script is the pid of the program. It is a script and not a `preexec_fn`, because
Python code between fork and exec may deadlock in a process that has threads.

IDENTITY says who the program believes to be:

* `self`: whoever runs this script;
* `namespace`: an ordinary user inside a fresh user namespace (root outside stays the owner of all
  files), with a System V shared memory of its own that vanishes with the program;
* `nobody`: the system's user of that name.
"""

import ctypes
import os
import pwd
import signal
import sys
from pathlib import Path

_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_ID_INSIDE = 1000


def _libc(function: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{function}{arguments} failed")


def _enter_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _libc("unshare", _CLONE_NEWUSER | _CLONE_NEWIPC)
    # The kernel lets a process map its own group only after it gave up setgroups().
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{_ID_INSIDE} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{_ID_INSIDE} {gid} 1")


def _become_nobody() -> None:
    account = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends."""
    if sys.platform != "linux":
        return
    _libc("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit("the parent was gone before the program started")


def main(arguments: list[str]) -> None:
    """Change identity, tie the life of this process to its parent, become the program."""
    identity, parent_pid, *program = arguments
    if identity == "namespace":
        _enter_namespace()
    elif identity == "nobody":
        _become_nobody()
    # Last, because the kernel forgets the death signal when credentials change.
    die_with(int(parent_pid))
    os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
