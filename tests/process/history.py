"""What must be true of the sections that contenders wrote down, although some were killed."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.process.ledger import Count, Section


def check_one_at_a_time(sections: Iterable[Section]) -> None:
    """No section begins before the one before it has ended; one that was lost may overlap."""
    ordered = sorted(sections, key=lambda section: section.start)
    overlapping = [
        (section, other)
        for section, other in pairwise(ordered)
        if not section.lost and other.start < _end(section)
    ]
    assert not overlapping


def check_fences_rise(sections: Iterable[Section]) -> None:
    """In the order of the sections their fences rise, and none comes twice."""
    ordered = sorted(sections, key=lambda section: section.start)
    falling = [
        (section, other) for section, other in pairwise(ordered) if section.fence >= other.fence
    ]
    assert not falling


def check_counted(sections: Sequence[Section], final: Count) -> None:
    """The counter has counted every section that came to its end, and nothing else.

    Who was killed inside may have counted or not. That is known exactly all the same: the counter
    names its last writer, so whoever came next, or the end, shows whether the write was there.
    """
    seen = {section.saw.fence for section in sections} | {final.fence}
    written = [
        section
        for section in _by_grant(sections)
        if section.end is not None or section.fence in seen
    ]
    left_behind = [Count(section.saw.value + 1, section.fence) for section in written]
    assert final.value == len(written)
    assert [*(section.saw for section in written), final] == [Count(0, 0), *left_behind]


def most_at_once(sections: Iterable[Section]) -> int:
    """Return how many sections were open at once at most; those that were lost do not count."""
    steps: list[tuple[float, int]] = []
    for section in sections:
        if not section.lost:
            steps += [(section.start, 1), (_end(section), -1)]
    inside = most = 0
    for _, step in sorted(steps):  # at the same instant, who leaves goes first
        inside += step
        most = max(most, inside)
    return most


def _by_grant(sections: Iterable[Section]) -> list[Section]:
    return sorted(sections, key=lambda section: section.fence)


def _end(section: Section) -> float:
    end = section.killed if section.end is None else section.end
    assert end is not None, f"neither ended nor lost nor killed: {section}"
    return max(section.start, end)
