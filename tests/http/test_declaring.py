"""Mistakes in declarations of routers and endpoints, and what is said about them."""

import pytest
from fastapi import FastAPI

from tenure import ConfigError, Tenure
from tenure.http import AsyncRouter


@pytest.fixture
def reports() -> AsyncRouter:
    return AsyncRouter(Tenure("memory://"), prefix="/reports", owner=lambda: "ann")


def test_a_router_that_is_included_itself_says_what_to_write(reports: AsyncRouter):
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
        ("status_code", "It is 202"),
        ("max_wiat", "Did you mean 'max_wait'?"),
        ("summary", "It takes max_wait, idempotency,"),
    ],
)
def test_an_unknown_option_names_those_that_there_are(reports, verb, option, advice):
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


def test_methods_are_no_handlers(reports: AsyncRouter):
    with pytest.raises(ConfigError, match=r"@router\.post\(\.\.\.\) stands above the method"):

        class Service:
            @reports.post("")
            async def build(self, body: dict[str, int]) -> None: ...
