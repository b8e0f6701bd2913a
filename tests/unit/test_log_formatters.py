"""Log records as JSON objects and as lines of text."""

import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tenure.observe.formatters import JsonFormatter, TextFormatter
from tenure.supervisor import log_setup

AT = 1_794_743_634.077  # 2026-11-15 11:53:54.077 UTC


def record_of(message: str = "hello", *arguments: object, **parts: Any) -> logging.LogRecord:
    record = logging.LogRecord("shop", logging.WARNING, "shop.py", 7, message, arguments, None)
    record.created = AT
    vars(record).update(parts)
    return record


def document_of(record: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormatter().format(record)
    assert text.isascii()
    assert "\n" not in text
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_an_object_has_the_instant_the_message_and_the_fields_of_its_record(berlin: None):
    document = document_of(record_of("%s of %d", "one\ntwo", 2, job="01a1", attempt=3, fence=None))
    assert list(document) == ["time", "level", "logger", "message", "process", "job", "attempt"]
    at = datetime.fromisoformat(document["time"])
    assert (at.timestamp(), at.utcoffset()) == (AT, timedelta(0))
    assert document["message"] == "one\ntwo of 2"
    assert (document["level"], document["logger"], document["attempt"]) == ("WARNING", "shop", 3)


def test_a_line_has_local_time_with_its_zone(berlin: None):
    line = TextFormatter().format(record_of("hello"))
    assert re.fullmatch(r"2026-11-15 12:53:54\.077\+01:00 WARNING \d+ shop: hello", line), line


def test_a_field_cannot_replace_what_every_object_has():
    document = document_of(record_of(level="none", time="never", logger="other"))
    assert (document["level"], document["logger"]) == ("WARNING", "shop")
    assert document["time"].startswith("2026-11-15T11:53:54")


def test_tracebacks_are_text_without_the_indentation_of_lines():
    try:
        raise ValueError("no\nrest")
    except ValueError:
        plain = document_of(record_of(exc_info=sys.exc_info()))["exc"]
    assert plain.startswith("Traceback (most recent call last):\n  File ")
    assert plain.endswith("ValueError: no\nrest")
    safe = document_of(record_of(exc_text="Traceback:\n  |   File x\n  | ValueError: no"))["exc"]
    assert safe == "Traceback:\n  File x\nValueError: no"


def _circle() -> list[object]:
    circle: list[object] = []
    circle.append(circle)
    return circle


class _Query(list[int]):
    """A list that is read from a database when it is looked at."""

    def __iter__(self) -> Iterator[int]:
        raise ConnectionError


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        object(),
        b"\xff",
        _circle(),
        {(1, 2): 3},
        "\udc80",
        float("inf"),
        10**400,
        _Query([1]),
    ],
)
def test_no_value_keeps_a_record_from_being_written(value: object):
    document = document_of(record_of(odd=value, job="01a1"))
    assert "odd" in document
    assert document["job"] == "01a1"


def test_a_message_whose_arguments_do_not_fit_is_written_with_them():
    assert document_of(record_of("%d", "x"))["message"] == "%d ('x',)"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__


UNPRINTABLE = "<Unprintable that cannot be shown>"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        ({"ages": [-math.inf]}, "{'ages': [-inf]}"),
        (Unprintable(), UNPRINTABLE),
        ({(1, 2): Unprintable()}, "<dict that cannot be shown>"),
        (10**5000, "<int that cannot be shown>"),
    ],
    ids=["nan", "inf", "nested", "unprintable", "unprintable within", "huge"],
)
def test_a_value_that_json_does_not_know_becomes_text(value: object, shown: str):
    text = JsonFormatter().format(record_of(value=value, customer=7))
    document = json.loads(text, parse_constant=pytest.fail)
    assert (document["value"], document["customer"]) == (shown, 7)


@pytest.mark.parametrize("argument", [Unprintable(), 10**5000], ids=["unprintable", "huge"])
def test_an_argument_that_cannot_be_shown_does_not_lose_the_record(argument: object):
    assert document_of(record_of("hello %s", argument))["message"].startswith("hello %s <")


def test_a_message_and_an_error_that_cannot_be_shown_do_not_lose_the_record():
    broken: Any = (ValueError, Unprintable(), None)
    document = document_of(record_of(Unprintable(), exc_info=broken))  # type: ignore[arg-type]
    assert document["message"].startswith(UNPRINTABLE)
    assert document["exc"] == UNPRINTABLE


def test_a_line_is_written_whole_though_the_system_takes_a_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
):
    written, write = bytearray(), os.write

    def take_a_part(descriptor: int, text: bytes) -> int:
        if descriptor != 2:
            return write(descriptor, text)
        written.extend(text[:10])
        return min(10, len(text))

    monkeypatch.setattr(os, "write", take_a_part)
    log_setup._StderrHandler().emit(record_of("x" * 100))
    assert written.decode() == "x" * 100 + "\n"
