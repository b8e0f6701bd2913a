"""Election with candidates that are killed and paused."""

import asyncio
import random
from typing import Any

from tests.process.orders import boot
from tests.process.site import Site
from tests.rig.sizes import SIZE

TTL = 1.0


async def test_terms_never_overlap_and_their_fences_rise(site: Site):
    candidates = [site.start("candidate", TTL) for _ in range(4)]
    for candidate in candidates:
        candidate.expect("ready", SIZE.patience)
    # The seed decides who suffers what; the machine decides when, so no run is like another.
    chance = random.Random(1)
    begun = boot()
    # A candidate that is stopped or killed in line holds up the others for a while, so a run that
    # has seen too little goes on.
    while boot() < begun + SIZE.seconds or len(terms_of(site)) <= 3:
        assert boot() < begun + SIZE.seconds + SIZE.patience
        victim = chance.choice(candidates)
        if chance.random() < 0.3:
            victim.kill()
            candidates[candidates.index(victim)] = site.start("candidate", TTL)
        else:
            victim.stop_signal()
            await asyncio.sleep(1.5 * TTL)
            victim.cont()
        await asyncio.sleep(0.3)
    for child in site.fleet.children:
        child.kill()
    leads = terms_of(site)
    fences = [fence for _, fence in leads]
    assert fences == sorted(set(fences))
    # A term that was not lost was alone to its end.
    ended = [event for event in events_of(site, "led") if not event["lost"]]
    for term in ended:
        others = [at for at, fence in leads if term["begun"] < at < term["ended"]]
        assert others == []


def terms_of(site: Site) -> list[tuple[float, int]]:
    """Return when each term began, and its fence, in order."""
    return sorted((event["boot"], event["fence"]) for event in events_of(site, "leads"))


def events_of(site: Site, kind: str) -> list[dict[str, Any]]:
    events = [event for child in site.fleet.children for event in child.events]
    return [event for event in events if event["kind"] == kind]
