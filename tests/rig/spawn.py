"""Start child processes that cannot outlive this one, and signal whole families of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO, Literal

from tests.rig.wait import wait_until

Identity = Literal["self", "namespace", "nobody"]
Stream = int | IO[bytes]

_LAUNCHER = Path(__file__).with_name("launch.py")


@cache
def _starter(owner_pid: int) -> ThreadPoolExecutor:
    """Return the thread that starts all children of this process.

    Linux sends the death signal when the *thread* that forked ends. A child started from a
    short-lived thread would be killed in the middle of a test, so one thread that lives as long as
    the process does all the forking. The pid is the key because threads do not survive a fork.
    """
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"starter-{owner_pid}")


def spawn(
    command: Sequence[str | Path],
    *,
    identity: Identity = "self",
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a session and process group of its own; it dies with this process."""
    launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), identity, str(os.getpid())]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*launcher, *map(str, command)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )

    return _starter(os.getpid()).submit(start).result()


def run(
    command: Sequence[str | Path],
    *,
    identity: Identity = "self",
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60.0,
) -> str:
    """Run a command to its end and return its output; raise with that output when it fails."""
    process = spawn(
        command,
        identity=identity,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        cwd=cwd,
    )
    try:
        output, _ = process.communicate(stdin, timeout)
    finally:
        if process.poll() is None:
            kill_family(process)
    text = output.decode(errors="replace")
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}:\n{text}")
    return text


def family(pid: int, without: Collection[int] = ()) -> list[int]:
    """Return `pid` and all its descendants, parents before children.

    Nothing of the families of those in `without`, all by one look at the processes.
    """
    children: dict[int, list[int]] = {}
    for child, parent in _parents():
        children.setdefault(parent, []).append(child)
    members = [pid]
    for member in members:
        members.extend(child for child in children.get(member, ()) if child not in without)
    return members


def alive(pid: int) -> bool:
    """Say whether a process exists and still runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return False
        return _answers(pid)
    return state not in "ZX"


def stands_still(pid: int) -> bool:
    """Say whether all threads of a process are stopped; a signal takes its time on a busy core."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        states = [(thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in threads]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return bool(states) and set(states) <= {"T"}


def freeze_family(pid: int) -> list[int]:
    """Stop `pid` and all its descendants; return their pids, parents first.

    A member that is still running can fork between the listing and its own stop, so the listing is
    repeated until it shows nobody new.
    """
    stopped: list[int] = []
    while new := [member for member in family(pid) if member not in stopped]:
        send(new, signal.SIGSTOP)
        stopped += new
    return stopped


def kill_family(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a child of ours and all its descendants, and reap it."""
    if process.poll() is None:
        # Stopped first: a child that loses its parent can no longer be found from the pid.
        members = freeze_family(process.pid)
        send(members, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not any(map(alive, members)), 30, "killed processes are gone")


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal every pid that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _parents() -> Iterable[tuple[int, int]]:
    """Yield (pid, parent pid) of every process."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, check=True, text=True
        )
        for line in listing.stdout.splitlines():
            pid, parent = line.split()
            yield int(pid), int(parent)
        return
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                # The name of the program stands in brackets and may itself hold spaces.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(entry.name), int(fields[1])
