"""Rules for the contents of jobs: what a rule does not name stays hidden."""

import msgspec
import pytest

from tenure.core.jobs.records import JobRecord
from tenure.dashboard import Viewer
from tenure.dashboard.masks import Masks

ANN = Viewer("ann", may_reveal=True)
BOB = Viewer("bob")
JOB = JobRecord(
    id="01890a5d-ac96-774b-bcce-b302099a8057",
    task="login",
    queue="default",
    priority=5,
    state="succeeded",
    payload=b'{"user":"ada","pin":"canary"}',
    checkpoint=b'"canary"',
    result=b'"canary"',
    created=1,
    due=1,
)


def test_a_list_of_arguments_shows_nothing_else() -> None:
    contents = Masks({"login": ["user"]}).contents(JOB)
    assert contents["arguments"] == {"user": "ada", "pin": None}
    assert contents["masked"] == ["checkpoint", "result", "arguments.pin"]
    assert "canary" not in str(contents)


@pytest.mark.parametrize("payload", [b'["canary"]', b'"canary"', b"canary", b'{"user": "canary'])
def test_arguments_without_names_are_hidden_by_a_list(payload: bytes) -> None:
    contents = Masks({"login": ["user"]}).contents(msgspec.structs.replace(JOB, payload=payload))
    assert contents["arguments"] is None
    assert "arguments" in contents["masked"]
    assert "canary" not in str(contents)


def test_a_list_of_no_arguments_hides_all() -> None:
    """It is a rule, and not a missing one, for which "*" would stand."""
    masks = Masks({"login": [], "*": "always"})
    contents = masks.contents(JOB)
    assert contents["arguments"] == {"user": None, "pin": None}
    assert "canary" not in str(contents)
    assert not masks.may_reveal(BOB, "login")
    assert not masks.may_see_all(ANN, "login")
    assert masks.may_reveal(BOB, "other")


def test_a_problem_of_a_hidden_result_is_hidden() -> None:
    """It may quote a key of the result."""
    job = msgspec.structs.replace(JOB, result=b'!{"problem": "no canary"}')
    assert Masks({"login": ["user"]}).contents(job)["result_problem"] == ""
    assert Masks({}).contents(job)["result_problem"] == "no canary"
