"""Data from a store is bounded before it is decoded, and errors say what is wrong with it."""

import json
import time
import tracemalloc
from typing import Any

import pytest

from tenure import ArgumentsError, Backoff, ResultUnavailable, Tenure, TooLarge, current_job
from tenure.core.values.depth import DEPTH_MAX, is_too_deep
from tenure.core.values.signature import Signature
from tests.contract.worlds import World
from tests.security.workers import app_on, ended, put

KIB = 1024


def taking(value: Any, number: int = 0) -> Any: ...


SIGNATURE = Signature(taking, "taking")


def with_value(text: bytes) -> bytes:
    return b'{"value":' + text + b"}"


def nested(depth: int, opening: bytes = b"[", closing: bytes = b"]", inner: bytes = b"") -> bytes:
    return opening * depth + inner + closing * depth


def corpus() -> list[bytes]:
    """Return documents of which none is a call of `taking`."""
    good = b'{"value":[1,"two",null,{"x":1.5e3}],"number":7}'
    deep = [65, 70, 100, 500, 999, 1000, 5000, 40_000]
    digits = [4_301, 5_000, 50_000, 200_000]
    return [
        *(good[:end] for end in range(len(good))),  # cut off anywhere
        *(
            good[:at] + b"\x00" + good[at:]
            for at in range(len(good) + 1)
            if good[at : at + 1] != b'"'
        ),
        *(good[:at] + b"\xff" + good[at + 1 :] for at in range(len(good))),
        *(with_value(nested(depth)) for depth in deep),
        *(with_value(nested(depth, b'{"a":', b"}", b"1")) for depth in deep),
        *(with_value(b"[" * depth) for depth in deep),
        *(with_value(b'{"a":' * depth) for depth in deep),
        *(with_value(sign + b"9" * length) for length in digits for sign in (b"", b"-")),
        *(b'{"value":1,"number":' + b"9" * length + b"}" for length in digits),
        *(with_value(b"1" * length + b"." + b"1" * length) for length in (400, 50_000)),
        *(
            with_value(literal)
            for literal in (b"1e999", b"-1e999", b"1e+999999999", b"01", b"1.", b".5")
        ),
        *(
            with_value(literal)
            for literal in (b"NaN", b"Infinity", b"-Infinity", b"nan", b"+1", b"0x1")
        ),
        *(
            with_value(literal)
            for literal in (b"True", b"None", b"undefined", b"'x'", b"//", b"/**/1")
        ),
        *(
            with_value(b'"' + text + b'"')
            for text in (b"\\ud800", b"\\udfff\\ud800", b"\\uZZZZ", b"\\x00")
        ),
        *(
            with_value(b'"' + text + b'"')
            for text in (b"\x00", b"\n", b"\x1f", b"\xed\xa0\x80", b"\xc0\x80")
        ),
        *(with_value(b'"' + bytes([byte]) + b'"') for byte in range(0x80, 0x100)),
        *(with_value(b'"' + b"\\" * count + b'"') for count in (1, 3, 50_001)),
        *(
            b'{"value":1,' + member + b"}"
            for member in (b'"other":1', b'"number":"7"', b'"number":null')
        ),
        *(
            b'{"value":1,"number":' + number + b"}"
            for number in (b"1.5", b"[]", b"{}", b"true", b'""')
        ),
        *(
            b"",
            b"null",
            b"[]",
            b"1",
            b'""',
            b"true",
            b"{}{}",
            b'{"value":1}x',
            b'{"value":1}{"value":1}',
        ),
        *(
            b'\xef\xbb\xbf{"value":1}',
            '{"value":1}'.encode("utf-16"),
            '{"value":1}'.encode("utf-32"),
        ),
        *(
            b"[" * 60_000 + b"{" * 60_000,
            b'"' * 99_999,
            b'{"' * 60_000,
            b'"\\' * 60_000,
            b"\x00" * 99_999,
        ),
    ]


CORPUS = corpus()


def test_the_corpus_is_worth_its_name():
    assert len(CORPUS) > 350
    assert max(map(len, CORPUS)) < 256 * KIB  # or only its size would be refused


def test_each_bad_document_is_refused_quickly_and_in_little_memory():
    slowest = 0.0
    tracemalloc.start()
    try:
        for document in CORPUS:
            tracemalloc.reset_peak()
            held, _ = tracemalloc.get_traced_memory()
            began = time.process_time()
            with pytest.raises(ArgumentsError, match="do not fit task 'taking'") as caught:
                SIGNATURE.decode_arguments(document)
            slowest = max(slowest, time.process_time() - began)
            assert tracemalloc.get_traced_memory()[1] - held < 20 * KIB * KIB
            assert len(str(caught.value)) < 500
    finally:
        tracemalloc.stop()
    assert slowest < 0.5  # some 50 ms, on a machine that has nothing else to do


async def test_bad_documents_end_as_failed_jobs_and_leave_workers_alive(real_world: World):
    async with app_on(real_world) as app, app.worker(concurrency=8):
        bad = await ended(app, await put(app, CORPUS))
        [good] = await ended(app, await put(app, [b'{"value":[1]}']))
    assert {(job.state, job.reason) for job in bad} == {("failed", "arguments")}
    errors = [json.loads(job.error or b"{}") for job in bad]
    assert {error["type"] for error in errors} == {"tenure.errors.ArgumentsError"}
    assert (good.state, good.result) == ("succeeded", b"[1]")


@pytest.mark.parametrize("depth", [2, 3, 63, 64, 65, 66, 1000])
def test_the_depth_of_a_document_is_told_without_reading_it(depth: int):
    for text in (
        nested(depth),
        nested(depth, b'{"[":', b"}", b"0"),
        b"[" + nested(depth - 1) + b"," + nested(depth - 1) + b"]",
        nested(depth - 1, b'[{"a":1},', b"]", b'"]"'),
        nested(depth // 2, b'[{"\\"}":', b"}]", b"[]" if depth % 2 else b"1"),
    ):
        json_text = json.loads(text) if depth < 500 else None
        assert is_too_deep(text) == (depth > DEPTH_MAX), (depth, text[:80], json_text)


def test_brackets_in_texts_do_not_count():
    assert not is_too_deep(b'"' + b"[" * 1000 + b'"')
    assert not is_too_deep(b'["' + b'\\"[' * 1000 + b'"]')
    assert not is_too_deep(b"[" + b",".join([b'{"a":[1]}'] * 1000) + b"]")


def test_values_nested_too_deeply_are_not_stored():
    value: Any = 1
    for _ in range(DEPTH_MAX - 1):  # and one more for the arguments themselves
        value = [value]
    SIGNATURE.encode_arguments((value,), {})
    with pytest.raises(ArgumentsError, match="more than 64 deep"):
        SIGNATURE.encode_arguments(([value],), {})


async def test_arguments_beyond_the_limit_are_not_even_read(real_world: World, monkeypatch):
    def read(*_: object) -> None:
        pytest.fail("read before it was measured")

    async with app_on(real_world, payload_limit=64 * KIB) as app:
        ids = await put(app, [with_value(b'"' + b"x" * 64 * KIB + b'"')])
        monkeypatch.setattr(Signature, "decode_arguments", read)
        async with app.worker():
            [job] = await ended(app, ids)
    assert job.state == "failed"
    assert b"payload_limit allows 65,536" in (job.error or b"")


async def test_results_and_checkpoints_are_bounded(real_world: World):
    app = Tenure(real_world.unopened(), result_limit=KIB)
    errors = []

    @app.task(retry=Backoff(max_attempts=1))
    async def big(size: int) -> str:
        with pytest.raises(TooLarge) as caught:
            await current_job().save("x" * size)
        errors.append(str(caught.value))
        return "x" * size

    async with app, app.worker():
        job = await (await big.enqueue(2 * KIB)).wait(20)
        with pytest.raises(ResultUnavailable, match="result_limit allows 1,024"):
            await job.result()
    assert job.state == "succeeded"
    assert len(errors) == 1


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "\ud800", {"\ud800": 1}, 10**5000, {1: "\udfff"}],
    ids=["nan", "infinity", "surrogate", "name", "large", "inner"],
)
def test_values_without_a_json_form_are_refused_before_they_are_stored(value: Any):
    def typed(value: float | str | dict[str, Any], number: int = 0) -> None: ...

    with pytest.raises(ArgumentsError):
        Signature(typed, "typed").encode_arguments((value,), {})


def test_the_last_of_two_equal_names_counts():
    assert SIGNATURE.decode_arguments(b'{"value":1,"value":2}') == ([], {"value": 2})


def test_errors_messages_and_reasons_are_cut_before_they_are_stored():
    from tenure.runtime.attempts.reports import report_on

    report = report_on(ValueError("x" * 10**6 + "\0\ud800"))
    assert len(report.message) == 4000
    assert len(report.trace) <= 8000
    assert len(report.line) <= 300
