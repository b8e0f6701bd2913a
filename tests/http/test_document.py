"""The OpenAPI document, word for word, because clients are generated from it."""

import json
from pathlib import Path

from tenure.http.problems import KINDS
from tests.http.document import make_document


def test_the_openapi_document_has_not_changed():
    """See `document.py` for how to write the expected text again."""
    text = (Path(__file__).parent / "document.json").read_text(encoding="utf-8")
    assert make_document() == json.loads(text)


def test_every_problem_type_has_its_documented_status():
    assert {kind: row.status for kind, row in KINDS.items()} == {
        "malformed-request": 400,
        "idempotency-key-missing": 400,
        "idempotency-key-malformed": 400,
        "unknown-owner": 403,
        "not-found": 404,
        "method-not-allowed": 405,
        "not-acceptable": 406,
        "not-ready": 409,
        "cancelled": 410,
        "expired": 410,
        "body-too-large": 413,
        "unsupported-media-type": 415,
        "invalid-request": 422,
        "idempotency-key-reused": 422,
        "too-many-jobs": 429,
        "too-many-requests": 429,
        "job-failed": 500,
        "result-unavailable": 500,
        "job-lost": 500,
        "job-unreadable": 500,
        "queue-full": 503,
        "store-full": 503,
        "store-unavailable": 503,
        "job-timed-out": 504,
    }
