"""Mistakes in declarations of routers and endpoints, and their error messages."""

import pytest
from fastapi import FastAPI

from tenure import ConfigError, Tenure
from tenure.http import AsyncRouter, Limits
from tenure.http.server.router import _needed
from tenure.http.server.starlette import _reader_of_owners


@pytest.fixture
def reports() -> AsyncRouter:
    return AsyncRouter(Tenure("memory://"), prefix="/reports", owner=lambda: "ann")


def test_including_the_router_object_itself_raises_an_error_with_advice(reports: AsyncRouter):
    with pytest.raises(AttributeError, match=r"api\.include_router\(reports\.router\)"):
        FastAPI().include_router(reports)
    with pytest.raises(AttributeError, match=r"reports\.asgi"):
        list(reports.routes)
    assert not hasattr(reports, "nothing")


def test_an_error_of_the_routers_own_is_not_hidden(reports: AsyncRouter, monkeypatch):
    def fail() -> None:
        raise AttributeError("a mistake of ours")

    monkeypatch.setattr(reports, "_build", fail)
    with pytest.raises(AttributeError, match="a mistake of ours"):
        _ = reports.router


@pytest.mark.parametrize("verb", ["post", "put", "patch", "delete"])
@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("tags", "include_router(reports.router, tags="),
        ("dependencies", "AsyncRouter(app, dependencies="),
        ("response_model", "the return type"),
        ("status_code", "It is always 202"),
        ("max_wiat", "Did you mean 'max_wait'?"),
        ("summary", "It takes max_wait, idempotency,"),
    ],
)
def test_an_unknown_option_raises_an_error_with_all_options(reports, verb, option, advice):
    with pytest.raises(TypeError, match=f"{verb}\\(\\) has no option '{option}'") as caught:
        getattr(reports, verb)("", **{option: None})
    assert advice in str(caught.value)
    assert "executor." in str(caught.value)


def test_every_option_of_an_endpoint_is_known(reports: AsyncRouter):
    async def handler() -> None: ...

    options = {"queue": "slow", "timeout": 3, "priority": 1, "name": "a", "retry": None}
    options |= {"max_wait": 1, "idempotency": "off", "body_limit": 10, "headers": ["X-A"]}
    options |= {"limits": None, "before_enqueue": None, "retention": 1, "executor": "auto"}
    task = reports.post("", media_type="application/json", **options)(handler)
    assert task.name == "a"
    taken = task.options
    assert (taken.queue, taken.timeout, taken.priority) == ("slow", 3, 1)
    assert taken.retention == 60
    [endpoint] = reports.endpoints
    assert (endpoint.method, endpoint.path) == ("POST", "")
    assert (endpoint.entry.max_wait, endpoint.entry.body_limit) == (1, 10)
    assert (endpoint.entry.idempotency, endpoint.entry.headers) == ("off", {"x-a"})


def test_options_that_are_not_set_come_from_the_router_or_have_a_default():
    limits = Limits(running=3)
    router = AsyncRouter(
        Tenure("memory://"), owner=lambda: "ann", headers=["X-A"], body_limit=7, limits=limits
    )

    async def handler() -> None: ...

    plain = router.post("/a", name="plain")(handler)
    other = Limits(running=4)
    router.post("/b", name="own", headers=[], body_limit=0, max_wait=0, limits=other)(handler)
    first, second = (endpoint.entry for endpoint in router.endpoints)
    assert (first.max_wait, first.body_limit, first.headers) == (20, 7, {"x-a"})
    assert (second.max_wait, second.body_limit, second.headers) == (0, 0, set())
    assert (first.limits, second.limits) == (limits, other)
    assert first.idempotency == second.idempotency == "optional"
    assert (plain.options.queue, plain.options.priority) == ("default", 5)


@pytest.mark.parametrize("name", ["retry", "executor", "priority", "timeout", "retention"])
def test_a_wrong_option_of_the_task_is_refused(reports: AsyncRouter, name: str):
    async def handler() -> None: ...

    with pytest.raises(ConfigError, match=name):
        reports.post("", **{name: "soon"})(handler)


@pytest.mark.parametrize("name", ["Authorization", "cookie", "Proxy-Authorization", "SET-COOKIE"])
def test_headers_with_secrets_cannot_be_kept(reports: AsyncRouter, name: str):
    with pytest.raises(ConfigError, match=f"'{name.lower()}': this header contains a secret"):
        reports.post("", headers=["X-A", name])


@pytest.mark.parametrize("name", ["running", "per_minute", "waiting"])
def test_the_bounds_of_a_limit_are_limits(name: str):
    most = 10_000 if name == "waiting" else 200
    for allowed in (1, most, None):
        assert getattr(Limits(**{name: allowed}), name) == allowed
    for refused in (0, most + 1, 1.0):
        with pytest.raises(ConfigError, match=f"{name} must be a whole number from 1 to"):
            Limits(**{name: refused})


def test_routers_without_a_prefix_have_a_name_too():
    app = Tenure("memory://")
    AsyncRouter(app)
    with pytest.raises(ConfigError, match="already has an AsyncRouter named '/'"):
        AsyncRouter(app)
    with pytest.raises(ConfigError, match="already has an AsyncRouter named 'mine'"):
        AsyncRouter(app, name="mine"), AsyncRouter(app, name="mine", prefix="/other")


@pytest.mark.parametrize(
    ("module", "missing", "is_named"),
    [
        ("fastapi", "fastapi.routing", True),
        ("fastapi", "annotated_doc", False),
        ("fastapi", None, False),
        ("starlette", "starlette", True),
        ("starlette", "anyio", False),
    ],
)
def test_only_a_missing_framework_is_reported_with_its_extra(module, missing, is_named):
    with (
        pytest.raises(ModuleNotFoundError) as raised,
        _needed(module, "extra"),
    ):
        raise ModuleNotFoundError("what Python says", name=missing)
    assert ("tenure[extra]" in str(raised.value)) is is_named
    assert raised.value.name == (module if is_named else missing)


@pytest.mark.parametrize("owner", [None, lambda: "ann"])
@pytest.mark.parametrize("face", ["router", "asgi"])
def test_a_router_warns_if_it_has_no_owner(owner, face, caplog):
    router = AsyncRouter(Tenure("memory://"), prefix="/r", owner=owner)
    assert getattr(router, face) is getattr(router, face)
    warned = [record for record in caplog.records if "have no owner" in record.getMessage()]
    assert len(warned) == (owner is None)


def test_methods_are_refused_as_handlers(reports: AsyncRouter):
    with pytest.raises(ConfigError, match=r"@router\.post\(\.\.\.\) stands above the method"):

        class Service:
            @reports.post("")
            async def build(self, body: dict[str, int]) -> None: ...


def takes_anything(request, *more, **others) -> str:
    return "ann"


def takes_more(request, other: str) -> str:
    return other


def takes_text(name: str) -> str:
    return name


@pytest.mark.parametrize(
    ("owner", "works"),
    [
        (lambda: "ann", True),
        (lambda request: "ann", True),
        (lambda request, other="ben": other, True),
        (takes_anything, True),
        (str, True),
        (takes_more, False),
        (takes_text, False),
    ],
    ids=range(7),
)
def test_with_starlette_the_owner_function_gets_only_the_request(owner, works):
    if works:
        assert _reader_of_owners(owner) is not None
    else:
        with pytest.raises(ConfigError, match="gets the request alone"):
            _reader_of_owners(owner)
    assert _reader_of_owners(None) is None
