"""The table of a record in lua/record.lua, against what is packed and what is read."""

import re
from importlib.resources import files

import msgspec
import pytest

from tenure.core.jobs.records import JobRecord, NewJob, Unique
from tenure.stores.redis import RedisStore
from tenure.stores.redis.records import _Stored, read_job, run_words
from tests.contract.job_calls import claim, id_of, join, settle
from tests.rig.fixtures import Endpoint
from tests.stores.redis.inside import Looker, stores_of

TABLE = re.findall(
    r"^--   (head|middle|end|fixed) +(\w+) +(.+)$",
    (files("tenure.stores.redis") / "lua" / "record.lua").read_text(),
    re.MULTILINE,
)
NAMES = [name for _, name, _ in TABLE]

# What the first byte of a value says of its encoding.
FIRST_BYTES = {
    "uint 16": b"\xcd",
    "uint 32": b"\xce",
    "uint 64": b"\xcf",
    "bin 32": b"\xc6",
    "nil": b"\xc0",
}


def encodings_of(part: str) -> list[str]:
    return [encoding.partition(":")[0] for each, _, encoding in TABLE if each == part]


def pieces(values: bytes) -> list[bytes]:
    """Split values that stand one after the other."""
    parts = []
    while values:
        size = next(n for n in range(1, len(values) + 1) if _is_whole(values[:n]))
        parts.append(values[:size])
        values = values[size:]
    return parts


def _is_whole(value: bytes) -> bool:
    try:
        msgspec.msgpack.decode(value)
    except msgspec.DecodeError:
        return False
    return True


def is_encoded(value: bytes, encoding: str) -> bool:
    decoded = msgspec.msgpack.decode(value)
    if encoding in ("uint 16", "uint 32", "uint 64"):
        return value[:1] == FIRST_BYTES[encoding]
    if encoding == "bin 32 or nil":
        return value[:1] in (FIRST_BYTES["bin 32"], FIRST_BYTES["nil"])
    kinds = {
        "integer": int,
        "text": str,
        "text or nil": str | None,
        "number or nil": int | float | None,
        "array of text": list,
        "nil or array": list | None,
        "bytes": bytes,
    }
    return isinstance(decoded, kinds[encoding])


def test_the_table_names_what_is_read_in_its_order():
    assert tuple(NAMES) == _Stored.__struct_fields__


def test_every_field_of_a_job_is_in_the_table():
    assert set(JobRecord.__struct_fields__) <= set(NAMES)


@pytest.mark.parametrize("unique", [None, Unique(key="key", digest="d", keep=60, with_job=True)])
def test_clients_pack_the_head_and_what_is_fixed_as_the_table_says(unique: Unique | None):
    job = NewJob(id=id_of(1), task="t", tags=("a",), timeout=2, schedule="s", unique=unique)
    head, fixed = map(pieces, run_words(job))
    *packed_here, created = encodings_of("head")
    assert created == "uint 64"  # which the script adds
    assert all(map(is_encoded, head, packed_here))
    assert len(head) == len(packed_here)
    assert all(map(is_encoded, fixed, encodings_of("fixed")))
    assert len(fixed) == len(encodings_of("fixed"))


@pytest.mark.parametrize("state", ["waiting", "running", "succeeded", "failed"])
async def test_scripts_pack_what_changes_as_the_table_says(
    valkey_server: Endpoint, namespace: str, state: str
):
    looker = Looker(valkey_server, namespace)
    async with stores_of(namespace) as open_store:
        store: RedisStore = await open_store(valkey_server.url)
        await join(store, "ann")
        await store.jobs.insert([NewJob(id=id_of(1), task="t", tags=("a",), retention=60)])
        for job in await claim(store) if state != "waiting" else ():
            if state != "running":
                await settle(store, job, state, result=b"r" if state == "succeeded" else None)
        looker.redis.connection_pool.connection_kwargs["decode_responses"] = False
        looker.redis.connection_pool.reset()
        record, fixed = (looker.redis.hget(looker.job(key), id_of(1)) for key in ("state", "fixed"))
        parts = pieces(record)
        encodings = [each for part in ("head", "middle", "end") for each in encodings_of(part)]
        assert len(parts) == len(encodings)
        assert all(map(is_encoded, parts, encodings))
        assert msgspec.msgpack.decode(parts[0]) == len(b"".join(parts[: len(encodings_of("head"))]))
        assert [read_job(record, fixed)] == await store.jobs.get([id_of(1)])
