"""The options of a job: one text that no store looks into."""

import pytest

from tenure.core.jobs.options import JobOptions, read_options, write_options


def test_options_that_have_their_defaults_take_no_room():
    assert write_options() == ""
    assert read_options("") == JobOptions(retry="", rerun=True)


@pytest.mark.parametrize("retry", ["", '{"max_attempts":3}', 'quoted " and \\ and \u20ac'])
@pytest.mark.parametrize("rerun", [True, False])
def test_options_can_be_read_again(retry: str, rerun: bool):
    written = write_options(retry=retry, rerun=rerun)
    assert read_options(written) == JobOptions(retry=retry, rerun=rerun)


def test_only_what_differs_from_the_defaults_is_written():
    assert write_options(rerun=False) == '{"rerun":false}'
    assert write_options(retry="r") == '{"retry":"r"}'


def test_options_that_a_newer_release_added_are_ignored():
    assert read_options('{"retry":"r","shard":{"of":3}}') == JobOptions(retry="r", rerun=True)


@pytest.mark.parametrize(
    "text",
    [
        *("no JSON", "[]", "null", "{" * 5000, "[" * 5000),
        *('{"rerun":"yes"}', '{"retry":3}', '{"headers":{"a":7}}', '{"headers":["a"]}'),
    ],
)
def test_a_job_whose_options_cannot_be_read_does_not_run_again(text: str):
    """They may have said that a second run does harm."""
    assert read_options(text) == JobOptions(retry="", rerun=False)
