"""Bad input in any number: valid documents, changed by seeded dice."""

import random
from collections.abc import Iterator, Sequence

# What breaks readers: limits of numbers, brackets, quotes, escapes, and bytes of no text.
TOKENS = [
    *(
        b"0",
        b"-1",
        b"1e999",
        b"-0.0",
        b"9" * 25,
        b"9" * 5000,
        b"2147483648",
        b"9223372036854775808",
    ),
    *(b"NaN", b"Infinity", b"null", b"true", b'""', b"[]", b"{}", b"[[[[", b"{{", b'{"a":', b"]}"),
    *(b'"', b"\\", b"\\u0000", b"\\ud800", b"\\", b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"),
    *(
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xd8\x00",
        b"\x91" * 300,
        b"\xc7",
    ),
    *(
        b"\r\n",
        b"*-1\r\n",
        b"$-1\r\n",
        b"*3\r\n",
        b"%",
        b"%00",
        b"@",
        b":",
        b"/",
        b"?",
        b"#",
        b"[::",
    ),
    *(
        b" ",
        b"\t",
        b"\n",
        b"\x1b[2J",
        "\u202e".encode(),
        "\u0660".encode(),
        "²".encode(),
        b"d",
        b"ms",
    ),
    *(
        b"[" * 70 + b"]" * 70,
        b"[" * 3000,
        b'{"a":' * 3000,
        b"x" * 5000,
        b"2026-13-45",
        b"__class__",
    ),
]


class Mutator:
    """Makes input out of good examples. The same seed makes the same input."""

    def __init__(self, examples: Sequence[bytes], seed: int = 0) -> None:
        self._examples = examples
        self._chance = random.Random(seed)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._examples
        while True:
            data = self._chance.choice(self._examples)
            for _ in range(self._chance.choice((1, 1, 1, 2, 3, 8))):
                data = self._changed(data)
            yield data[:100_000]

    def _changed(self, data: bytes) -> bytes:  # noqa: PLR0911 - one line for each way
        chance = self._chance
        at = chance.randint(0, len(data))
        to = chance.randint(at, min(len(data), at + chance.choice((1, 4, 40))))
        match chance.randrange(7):
            case 0:  # one bit
                flipped = bytearray(data or b"\0")
                flipped[at % len(flipped)] ^= 1 << chance.randrange(8)
                return bytes(flipped)
            case 1:  # cut off
                return data[:at]
            case 2:  # something left out
                return data[:at] + data[to:]
            case 3:  # something said again
                return data[:to] + data[at:to] * chance.choice((1, 2, 50)) + data[to:]
            case 4:  # the end of another one
                other = chance.choice(self._examples)
                return data[:at] + other[chance.randint(0, len(other)) :]
            case 5:  # something else instead
                return data[:at] + chance.choice(TOKENS) + data[to:]
            case _:  # anything
                return data[:at] + chance.randbytes(chance.randint(1, 8)) + data[to:]
