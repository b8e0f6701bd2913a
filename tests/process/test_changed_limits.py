"""A rolling deploy that changes the limit of a semaphore, with processes of both releases."""

from pathlib import Path

import pytest

from tests.process.crowd import Crowd
from tests.process.ledger import Section
from tests.process.site import Site

OLD_PROCESSES = 6
NEW_PROCESSES = 2


@pytest.mark.draw(1)
@pytest.mark.parametrize(("old_limit", "new_limit"), [(10, 3), (3, 10)], ids=["down", "up"])
async def test_both_releases_get_their_turns_while_a_deploy_changes_the_limit(
    site: Site, tmp_path: Path, old_limit: int, new_limit: int
):
    limits = {"old": old_limit, "new": new_limit}
    for release in limits:
        (tmp_path / release).mkdir()
    old, new = (
        Crowd(site, tmp_path / release, "deploy", "--limit", limit, "--stay", 0.05)
        for release, limit in limits.items()
    )
    await old.gather(OLD_PROCESSES)
    await old.each_works_on()
    await new.gather(NEW_PROCESSES)
    await new.each_works_on()
    await old.each_works_on()
    await old.dismiss()
    await new.each_works_on()
    await new.dismiss()

    stays = [(section, old_limit) for section in old.sections()]
    stays += [(section, new_limit) for section in new.sections()]
    check_smallest_limit_rules(stays)


def check_smallest_limit_rules(stays: list[tuple[Section, int]]) -> None:
    """No stay begins with more inside than the smallest limit among them allows."""
    inside: list[tuple[Section, int]] = []
    for section, limit in sorted(stays, key=lambda stay: stay[0].start):
        inside = [stay for stay in inside if not stay[0].lost and _end(stay[0]) > section.start]
        inside.append((section, limit))
        assert len(inside) <= min(limit for _, limit in inside), inside


def _end(section: Section) -> float:
    assert section.end is not None, section
    return section.end
