import pytest

from tenure.core.leases import Lease, Mark
from tenure.stores.contract import Store
from tests.contract.calls import be_refused, holders, line, renew, take
from tests.contract.worlds import World

pytestmark = pytest.mark.leases

ODD_NAMES = [
    "it's",
    'say "hi"',
    "`tick`",
    "*",
    "a?c",
    "[a-z]",
    "{tag}",
    "{{x}}:{0}",
    "100%",
    "%s %(name)s",
    "$1 ${x}",
    ":name",
    "a_b",
    "a\\b",
    "\\",
    "--; DROP TABLE lease",
    "a:b/c.d|e,f",
    "tab\tand\nnewline\r",
    "\x01\x7f",
    " leading",
    "trailing ",
    " ",
    "0",
    "-1",
    "null",
    "läuft",
    "日本語",
    "🧑‍🚀🌍",
    "e\u0301",
    "\ufeffbom",
    "\u202eright to left",
    "\U0010ffff",
    "x" * 200,
    "🌍" * 200,
]

LOOKALIKES = [
    ("name", "Name"),
    ("STRASSE", "straße"),
    ("i", "İ"),
    ("a", "a "),
    ("a", " a"),
    ("a", "a\t"),
    ("a_b", "axb"),
    ("a%", "ab"),
    ("a*", "ab"),
    ("\u00e9", "e\u0301"),
    ("1", "01"),
    ("1", "1.0"),
    ("x" * 200, "x" * 199 + "y"),
    ("a", "a\u200b"),
    ("a:b", "a"),
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
async def test_a_name_is_kept_unchanged_and_not_interpreted(store: Store, name: str):
    lease = await take(store, name, name, meta={name: name})
    assert (lease.key, lease.holder, lease.meta) == (name, name, {name: name})
    await be_refused(store, name, f"{name[:190]}-2", waiting=60)
    assert await holders(store, name) == [name]
    assert await line(store, name) == [f"{name[:190]}-2"]
    assert await renew(store, lease) == [True]
    assert await store.leases.mark(name, lease, name)
    assert await store.leases.marked([name]) == [Mark(name, name, lease.fence)]
    assert await store.leases.release([lease]) == [True]
    assert await store.leases.release([Lease(key=name, holder=f"{name[:190]}-2")]) == [False]
    assert await store.leases.find() == []


@pytest.mark.parametrize(("name", "alike"), LOOKALIKES, ids=ascii)
async def test_names_that_look_alike_are_two_names(store: Store, name: str, alike: str):
    first, second = await take(store, name, "ann"), await take(store, alike, "ben")
    assert await holders(store, name) == ["ann"]
    assert await holders(store, alike) == ["ben"]
    assert await store.leases.mark(name, first, "1")
    assert await store.leases.marked([name, alike]) == [Mark(name, "1", first.fence), None]
    assert await store.leases.release([Lease(key=alike, holder="ann"), first]) == [False, True]
    assert await holders(store, alike) == ["ben"]
    assert await renew(store, second) == [True]


@pytest.mark.parametrize(("holder", "alike"), LOOKALIKES, ids=ascii)
async def test_holders_that_look_alike_are_two_holders(store: Store, holder: str, alike: str):
    first = await take(store, "key", holder, limit=2)
    second = await take(store, "key", alike, limit=2)
    assert first.fence < second.fence
    assert await holders(store, "key") == [holder, alike]
    assert await store.leases.release([Lease(key="key", holder=holder)]) == [True]
    assert await holders(store, "key") == [alike]


async def test_all_odd_names_live_side_by_side(store: Store):
    for name in ODD_NAMES:
        await take(store, name, "ann")
    assert [lease.key for lease in await store.leases.find()] == sorted(ODD_NAMES)
    assert all(await store.leases.release([Lease(key=name, holder="ann") for name in ODD_NAMES]))


@pytest.mark.parametrize(
    "suffix", ["2", ":key", "-", ".", "_", "x"], ids=lambda suffix: f"with{suffix}"
)
async def test_a_namespace_never_sees_one_whose_name_starts_with_its_own(world: World, suffix: str):
    here = await world.store()
    there = await world.store(world.namespace + suffix)
    names = ["key", "", ":key", "2:key", "2key", "x"]

    for name in filter(None, names):
        await take(here, name, "ann")
        await take(there, name, "ann")
        await be_refused(there, name, "ben", waiting=60)

    assert len(await here.leases.find()) == 5
    assert len(await there.leases.find()) == 10
    assert await there.leases.release([Lease(key="key", holder="ann")]) == [True]
    assert await holders(here, "key") == ["ann"]
    assert await line(here, "key") == []


async def test_two_namespaces_share_nothing(world: World):
    here = await world.store()
    there = await world.store(f"{world.namespace}-other")
    mine = await take(here, "key", "ann")
    theirs = await take(there, "key", "ben")
    assert await here.leases.mark("done", mine, "here")

    assert await there.leases.marked(["done"]) == [None]
    assert await renew(there, mine) == [False]
    assert not await there.leases.mark("done", mine, "there")
    assert await there.leases.release([mine]) == [False]
    assert await there.leases.release([theirs]) == [True]
    assert (await there.prune(idle=0)).leases in (0, 1)
    assert await holders(here, "key") == ["ann"]
    assert await here.leases.mark("done", mine, "here")


@pytest.mark.parametrize("letter", ["Aa", "._", ":-"])
async def test_namespaces_that_look_alike_are_two(world: World, letter: str):
    first, second = [await world.store(world.namespace + end) for end in letter]
    await take(first, "key", "ann")
    assert await second.leases.find() == []
    await take(second, "key", "ben")
    assert await holders(first, "key") == ["ann"]


async def test_a_namespace_may_have_sixty_characters_of_all_kinds(world: World):
    name = f"{world.namespace}_.:-AZaz09".ljust(60, "x")
    store = await world.store(name)
    await take(store, "key", "ann")
    assert await holders(store, "key") == ["ann"]
    assert store.namespace == name
