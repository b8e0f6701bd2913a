import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import pytest
from pydantic import BaseModel

from tenure import ArgumentsError, ConfigError
from tenure.core.values.json import decode_plain, encode
from tenure.core.values.signature import Signature


@dataclass
class Point:
    x: int
    y: int = 0


def sign(function) -> Signature:
    return Signature(function, "task")


def there_and_back(function, *args, **kwargs) -> tuple[list[Any], dict[str, Any]]:
    signature = sign(function)
    return signature.decode_arguments(signature.encode_arguments(args, kwargs))


def test_arguments_are_written_by_name():
    def function(a: int, b: Point, *c: int, d: str = "x", **e: int) -> None: ...

    written = sign(function).encode_arguments((1, Point(2), 3, 4), {"f": 5})
    assert json.loads(written) == {"a": 1, "b": {"x": 2, "y": 0}, "c": [3, 4], "e": {"f": 5}}


def test_defaults_are_not_written():
    def function(a: int = 1, *, b: int = 2) -> None: ...

    assert sign(function).encode_arguments((), {}) == b"{}"
    assert there_and_back(function) == ([], {})


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((1,), {"c": 3}),
        ((1, 2), {"c": 3}),
        ((1, 2, 3, 4), {"c": 5, "z": 6}),
        ((1,), {"b": 2, "c": 3}),
    ],
)
def test_a_call_with_what_came_back_is_the_same_call(args, kwargs):
    def function(a: int, /, b: int = 9, *rest: int, c: int, d: int = 8, **named: int):
        return a, b, rest, c, d, named

    again, named = there_and_back(function, *args, **kwargs)
    assert function(*again, **named) == function(*args, **kwargs)


def test_values_are_read_by_their_annotations():
    def function(when: datetime, points: list[Point], anything) -> None: ...

    when = datetime(2026, 1, 1, tzinfo=UTC)
    args, kwargs = there_and_back(function, when, [Point(1)], Point(2))
    assert [*args, *kwargs.values()] == [when, [Point(1)], {"x": 2, "y": 0}]


def test_annotations_may_be_text():
    def function(point: "Point") -> "Point": ...

    assert there_and_back(function, Point(1)) == ([], {"point": Point(1)})
    assert sign(function).decode_result(b'{"x":1}') == Point(1)


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"null", b'{"a":"x"}', b'{"a":1,"b":2}', b"{}", b"\xff"]
)
def test_payloads_that_do_not_fit(payload):
    def function(a: int) -> None: ...

    with pytest.raises(ArgumentsError, match="do not fit task 'task'"):
        sign(function).decode_arguments(payload)


def test_a_payload_nested_too_deeply():
    def function(a: list) -> None: ...

    with pytest.raises(ArgumentsError):
        sign(function).decode_arguments(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_data_names_no_code():
    def function(a: Any) -> None: ...

    tricky = {"__class__": "os.system", "__reduce__": ["rm"], "type": "Point"}
    assert there_and_back(function, tricky) == ([], {"a": tricky})


def test_a_result_by_its_annotation_or_plainly():
    def typed() -> list[Point]: ...
    def untyped(): ...
    def nothing() -> None: ...

    assert sign(typed).decode_result(encode([Point(1)])) == [Point(1)]
    assert sign(untyped).decode_result(encode([Point(1)])) == [{"x": 1, "y": 0}]
    assert sign(nothing).decode_result(encode(None)) is None
    assert decode_plain(encode(Point(1))) == {"x": 1, "y": 0}


class Odd: ...


@dataclass
class WithOdd:
    parts: "list[WithOdd]"
    odd: Odd | None = None


class Text(BaseModel):
    text: str


UNUSABLE = [
    (Odd, "'Odd' cannot be written"),
    (list[Odd], "'Odd' cannot be written"),
    (dict[str, WithOdd], "'Odd' cannot be written"),
    (Text | Odd, "cannot"),
    (Callable[[int], int], "'Callable' cannot be written"),
    (Iterator[int], "'Iterator' cannot be written"),
    (Generator[int], "'Generator' cannot be written"),
    (type[int], "'type' cannot be written"),
    (complex, "'complex' cannot be written"),
    (Exception, "'Exception' cannot be written"),
    (Self, "not supported"),
    (Point | dict[str, int], "JSON cannot tell these types apart"),
    (Point | WithOdd, "JSON cannot tell these types apart"),
]


@pytest.mark.parametrize(("kind", "problem"), UNUSABLE, ids=[str(kind) for kind, _ in UNUSABLE])
def test_types_that_cannot_work_are_refused_when_they_are_declared(kind, problem):
    def taking(a): ...
    def giving(): ...

    taking.__annotations__ = {"a": kind}
    giving.__annotations__ = {"return": kind}
    with pytest.raises(ConfigError, match=f"parameter 'a' of task 'task' .*{problem}"):
        sign(taking)
    with pytest.raises(ConfigError, match=f"the return type of task 'task' .*{problem}") as caught:
        sign(giving)
    assert "Use " in str(caught.value)  # it says what to do


def test_bound_methods_and_callables():
    class Service:
        def handle(self, n: int) -> int:
            return n

    assert there_and_back(Service().handle, 3) == ([], {"n": 3})


@dataclass
class Interrupted:
    """Ctrl-C arrives while it is made."""

    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise KeyboardInterrupt


def test_an_interrupt_is_no_misfit():
    def function(a: Interrupted) -> None: ...

    signature = sign(function)
    assert signature.decode_arguments(b'{"a":{"x":1}}') == ([], {"a": Interrupted(1)})
    with pytest.raises(KeyboardInterrupt):
        signature.decode_arguments(b'{"a":{"x":-1}}')
    broken = Interrupted(1)
    broken.x = -1
    with pytest.raises(KeyboardInterrupt):
        signature.encode_arguments((broken,), {})


def test_arguments_that_do_not_fit_are_refused_both_ways():
    def function(a: int) -> None: ...

    with pytest.raises(ArgumentsError):
        sign(function).encode_arguments(("x",), {})
    with pytest.raises(ArgumentsError):
        sign(function).decode_arguments(b'{"a":"x"}')


def test_parameters_after_a_default_are_passed_by_name():
    def function(a: int = 1, /, b: int = 2, *, c: int = 3):
        return a, b, c

    args, kwargs = there_and_back(function, b=5)
    assert function(*args, **kwargs) == (1, 5, 3)
