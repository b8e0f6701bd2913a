"""Problems: what a handler raises, what is stored of it, and how exceptions become problems."""

import json
import sys
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from tenure.http import Problem
from tenure.http.problems import pointer_step, problem_of_report, problems_of_frameworks
from tenure.runtime.attempts.reports import ErrorReport, report_on


class Forbidden(Problem):
    """A problem class of an application."""


def test_a_problem_has_standard_members_and_its_own():
    plain = Problem(404)
    assert plain.body == {"type": "about:blank", "title": "", "status": 404}
    assert plain.headers == {}
    full = Problem(
        409, "Taken", detail="By ben", type="urn:x", headers={"X-A": "1"}, by="ben", status_text="x"
    )
    assert full.body == {
        "type": "urn:x",
        "title": "Taken",
        "status": 409,
        "detail": "By ben",
        "by": "ben",
        "status_text": "x",
    }
    assert full.headers == {"X-A": "1"}
    assert json.loads(str(full)) == full.body


def test_signs_without_a_form_in_json_are_written_out():
    problem = Problem(400, "a\ud800", many=["\ud800", ("\ud801", 7)], more={"\ud802": {"x": "y"}})
    assert problem.body == {
        "type": "about:blank",
        "title": "a\\ud800",
        "status": 400,
        "many": ["\\ud800", ["\\ud801", 7]],
        "more": {"\\ud802": {"x": "y"}},
    }
    assert json.loads(str(problem)) == problem.body


def test_a_problem_that_fits_is_kept_as_it_is():
    problem = Problem(400, "t", detail="d" * 100, z=1)
    assert problem.message_within(len(str(problem))) == str(problem)
    shorter = json.loads(problem.message_within(len(str(problem)) - 1))
    assert shorter["detail"] == "d" * 100  # before the members after it
    assert "z" not in shorter


MOST = 400


def kept(**members: Any) -> dict[str, Any]:
    text = Problem(400, **members).message_within(MOST)
    assert len(text) <= MOST
    return json.loads(text)


def length(**members: Any) -> int:
    return len(json.dumps({"type": "about:blank", "title": "", "status": 400} | members,
                          separators=(",", ":"), ensure_ascii=False))  # fmt: skip


def test_the_type_has_a_quarter_of_the_room():
    fitting = "u" * (MOST // 4 - length(type=""))
    assert kept(type=fitting, detail="d" * MOST)["type"] == fitting
    assert kept(type=fitting + "u", detail="d" * MOST)["type"] == "about:blank"


def test_the_title_has_half_of_the_room():
    fitting = "t" * (MOST // 2 - length())
    assert kept(title=fitting, detail="d" * MOST)["title"] == fitting
    cut = kept(title=fitting + "t", detail="d" * MOST)["title"]
    assert cut == "t" * (len(fitting) - 1) + "\u2026"


def test_a_text_is_cut_to_what_fits_exactly():
    problem = Problem(400, detail="d" * MOST, more="m")
    text = problem.message_within(MOST)
    assert len(text) == MOST
    assert json.loads(text)["detail"].endswith("d\u2026")
    assert "more" not in json.loads(text)


def test_members_that_are_no_text_are_kept_whole_or_not_at_all():
    problem = kept(numbers=[1] * MOST, more="m", rest=["r"])
    assert problem == {
        "type": "about:blank",
        "title": "",
        "status": 400,
        "more": "m",
        "rest": ["r"],
    }


def test_the_first_members_are_kept_first():
    half = "x" * (MOST // 2)
    assert {"a", "b"} & set(kept(a=[half], b=[half])) == {"a"}


@pytest.mark.parametrize("status", [400, 404, 451, 499])
def test_an_exception_that_blames_the_client_becomes_a_problem(status):
    with pytest.raises(Problem) as raised, problems_of_frameworks():
        raise HTTPException(status, "why")
    titles = {400: "Bad Request", 404: "Not Found", 451: "Unavailable For Legal Reasons", 499: ""}
    assert raised.value.body == {
        "type": "about:blank",
        "title": titles[status],
        "status": status,
        "detail": "why",
    }


@pytest.mark.parametrize(
    "error", [HTTPException(500), HTTPException(399), HTTPException(503), ValueError("x")]
)
def test_other_exceptions_stay_unchanged(error):
    with pytest.raises(type(error)) as raised, problems_of_frameworks():
        raise error
    assert raised.value is error


def test_without_starlette_exceptions_stay_unchanged(monkeypatch):
    monkeypatch.delitem(sys.modules, "starlette.exceptions")
    with pytest.raises(ValueError, match="x"), problems_of_frameworks():
        raise ValueError("x")


@pytest.mark.parametrize(
    ("status", "answered"), [(400, 400), (599, 599), (399, 500), (600, 500), (200, 500)]
)
def test_a_kept_problem_has_an_error_status(status, answered):
    problem = problem_of_report(report_on(Problem(status, "Tea")))
    assert problem is not None
    assert (problem.status, problem.body["status"], problem.body["title"]) == (
        answered,
        status,
        "Tea",
    )


def test_a_problem_of_a_subclass_is_found_again():
    problem = problem_of_report(report_on(Forbidden(403, "No")))
    assert problem is not None
    assert problem.body["title"] == "No"
    assert problem_of_report(report_on(ValueError('{"status": 400}'))) is None


@pytest.mark.parametrize(
    "message",
    ["", "{", "[]", "7", "null", "{}", '{"status": null}', '{"status": "x"}', '{"status": []}',
     "[" * 100_000],
)  # fmt: skip
def test_a_damaged_problem_is_read_as_none(message):
    report = report_on(Problem(400))
    damaged = ErrorReport(**{name: getattr(report, name) for name in report.__struct_fields__}
                          | {"message": message})  # fmt: skip
    assert problem_of_report(damaged) is None


@pytest.mark.parametrize(
    ("name", "step"), [("a", "/a"), (0, "/0"), ("a/b~c", "/a~1b~0c"), ("~1", "/~01"), ("", "/")]
)
def test_a_step_of_a_json_pointer_is_escaped(name, step):
    assert pointer_step(name) == step
