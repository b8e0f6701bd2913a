"""Data never names code: nothing that is read from a store is imported, called or rebuilt."""

import ast
import base64
import pickle
import random
import string
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tenure import JobFailed, Tenure
from tenure.app import engine_of
from tenure.core.jobs.records import NewJob
from tenure.core.values.json import decode_plain
from tests.contract.worlds import World
from tests.rig.endings import leave, settlement
from tests.rig.sizes import SIZE
from tests.rig.wait import wait_until_async
from tests.security.sources import calls, imported, modules
from tests.security.workers import app_on, ended, put, put_all, records

# Modules that turn bytes into objects or code, or unpack without a bound.
FORBIDDEN = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml", "code"}
FORBIDDEN |= {"codeop", "runpy", "gzip", "bz2", "lzma", "zipfile", "tarfile", "xml", "dbm"}

# Where something is imported by its name, and whose name that is: never one out of a store.
BY_NAME = {
    "__init__.py": "the list of public names that are imported at their first use",
    "app/workers.py": "Tenure(imports=...)",
    "http/client/transport.py": "httpx2, or httpx",
    "runtime/attempts/processes/functions.py": "the module of a function declared as a task",
    "runtime/attempts/processes/preparation.py": "the set-up of logging that the worker chose",
    "stores/connect.py": "the list of stores",
    "supervisor/app_finder.py": "module:app of the command line, and Tenure(imports=...)",
}


def test_no_module_that_makes_objects_of_bytes_is_used():
    for path, tree in modules().items():
        roots = {name.partition(".")[0] for name in imported(tree)}
        assert not roots & FORBIDDEN, path
        zlib = {name for name in imported(tree) if name.startswith("zlib")}
        assert zlib <= {"zlib.crc32"}, path


def test_nothing_is_evaluated_and_no_shell_is_started():
    for path, tree in modules().items():
        for call in calls(tree):
            name = ast.unparse(call.func)
            assert name not in {"eval", "exec", "compile", "__import__", "os.system"}, path
            shells = [keyword.value for keyword in call.keywords if keyword.arg == "shell"]
            assert not any(getattr(keyword, "value", True) for keyword in shells), path


def test_names_of_imported_modules_come_from_the_program():
    using = {
        path
        for path, tree in modules().items()
        for call in calls(tree)
        if ast.unparse(call.func).rpartition(".")[2] == "import_module"
    }
    assert using == set(BY_NAME)


# What Python itself reports when code is made, found or started.
_TELLING = {"exec", "compile", "import", "marshal.loads", "marshal.load", "pickle.find_class"}
_TELLING |= {"os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "ctypes.dlopen"}
_watched: list[list[tuple[str, Any]]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched and event in _TELLING:
        _watched[-1].append((event, arguments[:1]))


@contextmanager
def watching() -> Iterator[list[tuple[str, Any]]]:
    """Tell of all code that is made or found inside the block, in any thread."""
    if _hook not in _hooked:  # a hook can never be taken away
        sys.addaudithook(_hook)
        _hooked.append(_hook)
    seen: list[tuple[str, Any]] = []
    _watched.append(seen)
    try:
        yield seen
    finally:
        _watched.remove(seen)


_hooked: list[Any] = []


def test_the_watch_sees_code():
    with watching() as seen:
        eval("1 + 1")
        pickle.loads(pickle.dumps(SIZE))
    assert {"exec", "compile", "pickle.find_class"} <= {event for event, _ in seen}


class Evil:
    """Calls something when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("owned",)


# Documents that would make an object in some other library.
GADGETS: list[Any] = [
    {"py/object": "os.system", "py/state": "id"},
    {"py/reduce": [{"py/function": "os.system"}, {"py/tuple": ["id"]}]},
    {"__class__": "subprocess.Popen", "__module__": "subprocess", "args": ["id"]},
    {"__reduce__": ["os.system", ["id"]]},
    {"__type__": "os.system", "__value__": "id"},
    {"__ref__": "os:system", "state": {}},
    {"$type": "System.Diagnostics.Process", "StartInfo": "id"},
    {"exc_type": "system", "exc_module": "os", "exc_message": ["id"]},
    {"!!python/object/apply:os.system": ["id"]},
    {"rce": "_$$ND_FUNC$$_function(){}()"},
    "!!python/object/apply:os.system ['id']",
    "cos\nsystem\n(S'id'\ntR.",
    base64.b64encode(pickle.dumps(Evil())).decode(),
    "{{ 7 * 7 }}",
    "${jndi:ldap://127.0.0.1/a}",
    "() { :; }; id",
]
RAW = [pickle.dumps(Evil(), protocol) for protocol in range(5)] + [
    b"\x80\x04cos\nsystem\n.",
    b"!!python/object/apply:os.system ['id']\n",
    b"cos\nsystem\n(S'id'\ntR.",
    b"\xe3\x00\x00\x00\x00",
    b"\x1f\x8b\x08\x00",
    b"PK\x03\x04",
]


async def test_documents_of_other_libraries_stay_plain_and_make_no_code(real_world: World):
    good = [msgspec.json.encode({"value": value}) for value in GADGETS]
    async with app_on(real_world) as app, app.worker(concurrency=4):
        await ended(app, await put(app, [good[0], RAW[0]]))  # imports what it needs
        with watching() as seen:
            done = await ended(app, await put(app, good))
            refused = await ended(app, await put(app, RAW))
    assert seen == []
    assert [decode_plain(job.result or b"") for job in done] == GADGETS
    assert {(job.state, job.reason) for job in refused} == {("failed", "arguments")}
    assert all(b"ArgumentsError" in (job.error or b"") for job in refused)


NAMES = [
    *(
        "os.system",
        "os:system",
        "builtins.eval",
        "builtins:exec",
        "subprocess.Popen",
        "antigravity",
    ),
    *(
        "this",
        "wsgiref.simple_server",
        "wsgiref.simple_server:demo_app",
        "idlelib.run",
        "turtledemo",
    ),
    *("__main__", "__init__", "__class__", "__import__", "taking.__globals__", "taking.__class__"),
    *("tests.sim.__main__", "tests.security.bomb", "../taking", "taking\n", "Taking", " "),
    *(
        "taking ",
        "lambda: 0",
        "import this",
        "{0.__class__}",
        "%(name)s",
        "${taking}",
        "*",
        "taking*",
    ),
]


def random_names(count: int) -> list[str]:
    chance = random.Random(6)
    letters = string.ascii_letters + "._:/$-_" + "é世\u202e"
    return ["".join(chance.choices(letters, k=chance.randint(1, 60))) for _ in range(count)]


async def test_a_task_name_is_only_a_key(real_world: World):
    names = [*NAMES, *random_names(100 if SIZE.name == "short" else 10_000)]
    async with app_on(real_world) as app:
        async with app.worker(concurrency=4):
            await ended(app, await put(app, [b'{"value":1}']))
            before = set(sys.modules)
            with watching() as seen:
                ids = await put_all(app, [NewJob(id="", task=name) for name in names])
                await handed_back(app, ids)
        assert set(sys.modules) == before
        assert seen == []
        # Not lost, not failed, not tried hot: each waits for a worker that knows it.
        stored = [job for job in await records(app, ids) if job is not None]
        assert [job.task for job in stored] == names
        assert {job.state for job in stored} == {"waiting"}
        assert {job.failures for job in stored} == {0}
        assert max(job.attempt for job in stored) <= 6


async def handed_back(app: Tenure, ids: list[str]) -> None:
    async def all_back() -> bool:
        return all(job and job.attempt and not job.replica for job in await records(app, ids))

    await wait_until_async(all_back, SIZE.patience, "every unknown job was handed back")


@pytest.mark.parametrize(
    "kind", ["builtins.SystemExit", "SystemExit", "os.system", "KeyboardInterrupt"]
)
async def test_an_error_is_never_rebuilt_from_its_name(real_world: World, kind: str):
    report = {"type": kind, "message": "id", "trace": "", "exc_module": "os", "args": ["id"]}
    async with app_on(real_world) as app:
        [id_] = await put(app, [b"{}"])
        store = engine_of(app).services().store
        await store.jobs.beat(["rep"], ttl=60, meta={})
        claimed = await store.jobs.claim("rep", 1, ["default"], 1)
        assert claimed is not None
        [job] = claimed.jobs
        end = settlement(
            id=id_,
            fence=job.fence,
            outcome="failed",
            reason="error",
            error=msgspec.json.encode(report),
        )
        assert await store.jobs.settle([end]) == ["settled"]
        with pytest.raises(JobFailed) as caught:
            await (await app.job(id_)).result()
        assert kind in str(caught.value)
        assert caught.value.__cause__ is None
        await leave(store, "rep")
