"""Election with candidates that are killed and paused."""

import asyncio
import random

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
    end = boot() + SIZE.seconds
    while boot() < end:
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
    events = [event for child in site.fleet.children for event in child.events]
    leads = sorted((event["boot"], event["fence"]) for event in events if event["kind"] == "leads")
    fences = [fence for _, fence in leads]
    assert len(fences) > 3
    assert fences == sorted(set(fences))
    # A term that was not lost was alone to its end.
    terms = [event for event in events if event["kind"] == "led" and not event["lost"]]
    for term in terms:
        others = [at for at, fence in leads if term["begun"] < at < term["ended"]]
        assert others == []
