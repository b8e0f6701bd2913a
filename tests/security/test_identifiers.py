"""Names are values: they never become part of a statement, a pattern or another one's key."""

import ast
import random
import re

import pytest

from tenure import ConfigError, Tenure
from tenure.core.jobs.records import NewJob
from tenure.core.leases import check_name
from tenure.stores.redis.scripts import SCRIPTS
from tests.contract.test_names import ODD_NAMES
from tests.contract.worlds import World
from tests.security.sources import SOURCE, modules
from tests.security.workers import put_all, records

HOSTILE = [
    "'", "''", '"', '""', "\\'", "';--", "'; DROP TABLE tenure_job; --", "' OR '1'='1",
    "') OR 1=1 --", "'; SELECT pg_sleep(10); --", "$$; DROP SCHEMA tenure CASCADE; $$", "$1", "$0",
    "?", ":id", "@x", "1; ATTACH DATABASE '/tmp/x' AS x", "'||(SELECT 1)||'", "E'\\x41'",
    "U&'\\0041'", "0x41", "NULL", "null", "true", "NaN", "-0", "1e400", "%", "%%", "_", "%27",
    "%00", "&#39;", "/*", "*/", "--", "#", "*", "?*[a]", "[^a]", "\\", "\\\\",
    "{tenure:other}:names", "}{", "{}", "{0}", "{x!r}", "%n%s%x", "\r\nFLUSHALL\r\n",
    "*1\r\n$8\r\nFLUSHALL\r\n", "EVAL", "redis.call('FLUSHALL')", "]]", "--[[", "\x01", "\x7f",
    "\t", "\n", "\r", "\x1b[2J", "\u202e", "\u2028", "\ufeff", "\u00a0", "\u200b", "İ", "ß",
    "../../etc/passwd", "..", "/", "C:\\x", "file:///x", "http://127.0.0.1/", "-rf", "--help",
    "`id`", "$(id)", "|id", ";id", "&", ">x", "<x", "<script>alert(1)</script>", "=1+1", "+1",
    "@SUM(1)", "-1",
]  # fmt: skip
LETTERS = "'\"\\;-%_*?[]{}()$:@#/<>|&~`^!,. \t\n\r\x01\x1b\x7fé世\u202e\U0001f30da0"


def hostile_names(count: int = 300) -> list[str]:
    chance = random.Random(20)
    made = ("".join(chance.choices(LETTERS, k=chance.randint(1, 40))) for _ in range(count))
    return [*dict.fromkeys([*HOSTILE, *ODD_NAMES, *made])][:count]


NAMES = hostile_names()


async def test_hostile_names_of_queues_tasks_and_tags_are_kept_and_found(real_world: World):
    assert len(NAMES) == 300
    canary = NewJob(id="", task="canary", queue="canary", tags=("canary",))
    async with Tenure(real_world.unopened()) as app:
        [safe] = await put_all(app, [canary])
        jobs = [NewJob(id="", task=name, queue=name, tags=(name,)) for name in NAMES]
        ids = await put_all(app, jobs)
        stored = await records(app, ids)
        assert [(job.task, job.queue, job.tags) for job in stored if job] == [
            (name, name, (name,)) for name in NAMES
        ]
        # Each finds itself and nothing else: no quote, no wild card, no other namespace.
        for name, id_ in list(zip(NAMES, ids, strict=True))[::4]:
            for filters in ({"queue": name}, {"task": name}, {"tag": name}):
                assert [job.id for job in await app.jobs(**filters)] == [id_], filters
        counts = {queue.queue: queue.waiting for queue in await app.queues()}
        assert counts == {"canary": 1, **dict.fromkeys(NAMES, 1)}
        await app.pause_queue(NAMES[2])
        await app.resume_queue(NAMES[2])
        assert (await app.job(safe)).state == "waiting"


@pytest.mark.parametrize(
    "name", [*HOSTILE, "", "a b", "ä", "a/b", "x" * 61, "a\n", "\na"], ids=ascii
)
def test_a_namespace_is_made_of_plain_letters(name: str):
    if re.fullmatch(r"[A-Za-z0-9_.:-]{1,60}", name):
        assert Tenure("memory://", namespace=name)
        return
    with pytest.raises(ConfigError, match="namespace"):
        Tenure("memory://", namespace=name)


@pytest.mark.parametrize(
    "name", ["", "a\0b", "\0", "\ud800", "a\udfff", "x" * 201, None, 7, b"x"], ids=ascii
)
def test_names_that_no_store_can_keep_are_refused(name: object):
    with pytest.raises(ConfigError) as caught:
        check_name(name, "queue")
    assert len(str(caught.value)) < 200


# What may be put into the text of a statement: constants of ours, by name, and these.
SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|PRAGMA|NOTIFY|LISTEN|CREATE|ALTER|GRANT|DROP|ATTACH)\b"
)
CONSTANT = re.compile(
    r"((bounds|soundness)\.)?_?[A-Z][A-Z_]*(\.check|\.of\('\w+'\))?"
    r"|round\(BUSY_TIMEOUT \* 1000\)( if patient else 0)?"
)
ALLOWED = {
    ("stores/postgres/doctor.py", "channel"): "16 hexadecimal digits of our own",
    ("stores/postgres/doctor.py", "more['role']"): "advice for people, never run",
    ("stores/postgres/rights.py", "whom"): "advice for people, never run",
    ("stores/postgres/rights.py", "written"): "our own tables",
    ("stores/sqlite/database.py", "level"): "FULL or NORMAL",
    ("stores/sqlite/transaction.py", "patience"): "a number that SQLite told",
    ("stores/transaction.py", "purpose"): "a sentence",
}


def test_no_value_is_written_into_a_statement():
    used = set()
    for path, tree in modules().items():
        for node in ast.walk(tree):
            for part in _put_in(node):
                text = ast.unparse(part)
                if CONSTANT.fullmatch(text):
                    continue
                assert (path, text) in ALLOWED, f"{path}:{node.lineno} puts {text} into a statement"
                used.add((path, text))
    assert used == set(ALLOWED)


def _put_in(node: ast.AST) -> list[ast.expr]:
    """Return what an expression puts into a text that looks like SQL."""
    if isinstance(node, ast.JoinedStr):
        fixed = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return parts if SQL.search(fixed) else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
        sides = [node.left, node.right]
        fixed = [side for side in sides if isinstance(side, ast.Constant)]
        if any(SQL.search(str(side.value)) for side in fixed):
            return [side for side in sides if side not in fixed]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        text = node.func.value
        if (
            node.func.attr == "format"
            and isinstance(text, ast.Constant)
            and SQL.search(str(text.value))
        ):
            return [*node.args]
    return []


LUA = sorted((SOURCE / "stores" / "redis" / "lua").glob("*.lua"))
# How scripts call the keys that were declared to them.
KEYS = re.compile(r"KEYS\[[\w. +]+\]|[A-Z]+(\[\w+\])?|places|info|patience|ends|index|KEY")
CHANNELS = re.compile(r"ARGV\[2\] \.\. ('job'|kind)|one\.address|CHANNEL")


@pytest.mark.parametrize("path", LUA, ids=lambda path: path.stem)
def test_a_script_touches_declared_keys_only(path):
    for command, key in re.findall(r"call\('([A-Z]+)', ([^,)]+)", path.read_text()):
        if command == "PUBLISH":
            assert CHANNELS.fullmatch(key), key
        else:
            assert KEYS.fullmatch(key), f"{command} {key}"
    assert not re.search(
        r"\b(loadstring|load|dofile|require|setfenv|getfenv)\b\s*\(", path.read_text()
    )


@pytest.mark.parametrize("path", LUA, ids=lambda path: path.stem)
def test_the_short_names_of_keys_mean_declared_keys(path):
    text = path.read_text()
    used = {key for _, key in re.findall(r"call\('([A-Z]+)', ([a-z]+)[,)]", text)}
    for name in used:
        for line in re.findall(rf"^\s*local [\w, ]*\b{name}\b[\w, ]* = .*$", text, re.MULTILINE):
            is_number = "= tonumber(" in line
            assert is_number or re.search(r"KEYS\[|INDEX\[|UNFINISHED", line), line


def test_scripts_are_constant():
    made = list(SCRIPTS.values())
    assert made
    # In lease scripts, crowd.lua stands at a mark between two halves.
    parts = [
        half for path in LUA for half in path.read_bytes().split(b"-- Insert crowd.lua here.\n")
    ]
    for script in made:
        rest = re.sub(rb"\Aredis\.call\('(ZREM|HDEL)', KEYS\[1\], '\\0'\)\n", b"", script.text)
        rest = re.sub(rb"\A(?:local [A-Z_, ]+ = [\d, ]+\n)+", b"", rest)
        for part in sorted(parts, key=len, reverse=True):
            rest = rest.replace(part, b"")
        assert rest == b"", script.name
