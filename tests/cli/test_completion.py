"""Shells complete the words of the command line."""

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tenure to", ["top"]),
        ("tenure jobs ls --state f", ["failed"]),
        ("tenure top --ev", ["--every"]),
    ],
)
def test_words_are_completed(
    shell: Run, monkeypatch: pytest.MonkeyPatch, words: str, expected: list[str]
):
    monkeypatch.setenv("_TENURE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    result = shell()
    assert [line.partition(",")[2] for line in result.out.splitlines()] == expected


def test_the_line_for_a_shell(shell: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("_TENURE_COMPLETE", "zsh_source")
    result = shell()
    assert result.code == 0
    assert result.out.startswith("#compdef tenure")
