"""Where junk can go on Redis: values, names, scores, and each value within a packed record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import redis

from tests.security.damage.documents import has_place, spoiled
from tests.security.damage.junk import PACKED, RAW, SCORES, pieces_of
from tests.security.damage.places import Field, has_documents, inside_of, is_bad

__all__ = ["OfRedis"]


@dataclass(frozen=True)
class _Spot:
    """One value of Redis: its key, and its field or member if the key has many."""

    key: bytes
    member: bytes | None = None


def _text_in(piece: bytes) -> str | None:
    """Return a text of MessagePack; None if it is something else."""
    try:
        value = msgspec.msgpack.decode(piece)
    except ValueError:
        return None
    return value if isinstance(value, str) and value[:1] in "{[" else None


class OfRedis:
    """Spoils values, names, scores, and each value within a packed record."""

    def __init__(self, url: str, namespace: str) -> None:
        self._redis = redis.Redis.from_url(url)
        self._tag = f"{{tenure:{namespace}}}:".encode()

    def close(self) -> None:
        self._redis.close()

    @cached_property
    def _groups(self) -> dict[str, list[_Spot]]:
        """All that was there at the first look, before anything was spoiled."""
        groups: dict[str, list[_Spot]] = {}
        for key in sorted(self._redis.scan_iter(match=self._tag + b"*", count=1000)):
            name = key[len(self._tag) :].decode(errors="replace")
            alone = name.split(":")[0] in ("head", "places", "info", "patience")
            group = f"{name.split(':')[0]}:*" if alone else name
            kind = self._redis.type(key)
            if kind == b"string":
                spots = [_Spot(key)]
            elif kind == b"hash":
                spots = [_Spot(key, member) for member in sorted(self._redis.hkeys(key))]
            else:
                spots = [_Spot(key, member) for member in self._redis.zrange(key, 0, -1)]
            groups.setdefault(group, []).extend(spot for spot in spots if is_bad(spot))
        return groups

    def _value(self, spot: _Spot) -> bytes | None:
        kind = self._redis.type(spot.key)
        if kind == b"string":
            return self._redis.get(spot.key)  # type: ignore[return-value]
        if kind == b"hash" and spot.member is not None:
            return self._redis.hget(spot.key, spot.member)  # type: ignore[return-value]
        return None

    def fields(self) -> list[Field]:
        fields: list[Field] = []
        for group, spots in self._groups.items():
            if not spots:
                continue
            values = [value for spot in spots[:3] if (value := self._value(spot)) is not None]
            if values:
                fields.append(Field(group, "value", tuple(RAW)))
                # Text would do as a row of small numbers.
                records = [pieces for value in values if (pieces := pieces_of(value))]
                counts = [len(pieces) for pieces in records if max(map(len, pieces)) > 1]
                if counts:
                    fields += [
                        Field(group, f"value[{at}]", tuple(PACKED)) for at in range(max(counts))
                    ]
            else:
                fields.append(Field(group, "score", tuple(SCORES)))
            if has_documents(group):
                fields += self._documents(group, values)
            if spots[0].member is not None:
                fields += [Field(group, "name", tuple(RAW)), Field(group, "more", tuple(RAW))]
            if group.endswith("*"):
                fields.append(Field(group, "type", ("string", "hash", "zset", "list", "none")))
        return fields

    @staticmethod
    def _documents(group: str, values: list[bytes]) -> list[Field]:
        """Return the fields inside of documents: of whole values, and of values within records."""
        fields = inside_of(group, "value", values)
        records = [pieces for value in values if (pieces := pieces_of(value))]
        for at in range(max(map(len, records), default=0)):
            texts = [_text_in(pieces[at]) for pieces in records if at < len(pieces)]
            fields += inside_of(group, f"value[{at}]", texts)
        return fields

    def rows(self, group: str) -> list[_Spot]:
        return self._groups.get(group, [])

    def spoil(self, field: Field, row: _Spot, junk: Any) -> bool:
        try:
            if field.path:
                return self._spoil_document(field, row, junk)
            self._spoil(field, row, junk)
        except redis.RedisError:
            return False
        return True

    def _spoil_document(self, field: Field, spot: _Spot, fragment: str) -> bool:
        value = self._value(spot) or b""
        pieces = pieces_of(value) or []
        at = int(field.name[6:-1]) if field.name != "value" else -1
        text = value if at < 0 else _text_in(pieces[at]) if at < len(pieces) else None
        if text is None or not has_place(text, field.path):
            return False
        new = spoiled(text, field.path, fragment).encode()
        if at >= 0:
            packed = msgspec.msgpack.encode(new.decode())
            new = b"".join([*pieces[:at], packed, *pieces[at + 1 :]])
        self._redis.hset(spot.key, spot.member, new)
        return True

    def _spoil(self, field: Field, spot: _Spot, junk: Any) -> None:
        client, value = self._redis, self._value(spot)
        if field.name == "type":
            self._change_type(spot.key, junk)
        elif field.name == "score":
            client.execute_command("ZADD", spot.key, junk, spot.member)
        elif field.name in ("name", "more"):
            assert spot.member is not None
            name = spot.member[: len(spot.member) // 2] if junk is None else junk
            if value is not None:
                client.hset(spot.key, name, value)
                if field.name == "name":
                    client.hdel(spot.key, spot.member)
            else:
                score = client.zscore(spot.key, spot.member)
                client.execute_command("ZADD", spot.key, repr(score), name)
                if field.name == "name":
                    client.zrem(spot.key, spot.member)
        else:
            assert value is not None
            new = value[: len(value) // 2] if junk is None else junk
            if field.name.startswith("value["):
                at = int(field.name[6:-1])
                pieces = pieces_of(value) or []
                new = b"".join([*pieces[:at], junk, *pieces[at + 1 :]])
            if spot.member is None:
                client.set(spot.key, new, keepttl=True)
            else:
                client.hset(spot.key, spot.member, new)

    def _change_type(self, key: bytes, kind: str) -> None:
        client = self._redis
        client.delete(key)
        if kind == "string":
            client.set(key, b"junk")
        elif kind == "hash":
            client.hset(key, b"junk", b"junk")
        elif kind == "zset":
            client.zadd(key, {b"junk": 1})
        elif kind == "list":
            client.rpush(key, b"junk")
