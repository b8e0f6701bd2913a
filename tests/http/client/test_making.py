"""How clients are created, and what they need."""

import subprocess
import sys

import httpx2
import pytest
from pydantic import BaseModel

from tenure import (
    ConfigError,
)
from tenure.http import AsyncClient
from tests.http.client.both_clients import got
from tests.http.network import (
    HurriedClock,
    Network,
    ReplyLost,
)


async def test_an_httpx_client_of_the_callers_is_used_and_stays_open(kind, server, user):
    own = getattr(httpx2, kind.__name__)(base_url=server.url, headers={"X-User": user})
    client = kind(http=own)
    job = await got(client.submit("/reports", {"size": 1}))
    assert await got(job.result(timeout=20)) == {"pages": "x"}
    await got(client.close())
    assert not own.is_closed
    await got(own.aclose() if kind is AsyncClient else own.close())
    with pytest.raises(ConfigError, match="pass base_url, auth to that client"):
        kind(server.url, http=own, auth=("a", "b"))


def test_a_base_url_needs_a_scheme(kind):
    with pytest.raises(ConfigError, match="must begin with http://"):
        kind("localhost:8000")


async def test_a_model_is_sent_as_json(client):
    class ReportRequest(BaseModel):
        size: int

    job = await got(client.submit("/reports", ReportRequest(size=1)))
    assert await got(job.result(timeout=20)) == {"pages": "x"}


async def test_requests_go_only_to_the_server_of_the_client(client, network):
    with pytest.raises(ConfigError, match="not on the server of this client"):
        await got(client.submit("http://elsewhere.example/reports", {}))
    with pytest.raises(ConfigError, match="not on the server of this client"):
        await got(client.job("https://elsewhere.example/reports/jobs/1"))
    assert network.sent == []


async def test_a_client_without_a_base_url_raises_an_error(kind):
    client = kind()
    with pytest.raises(ConfigError, match="base_url is ''"):
        await got(client.submit("/reports", {}))
    await got(client.close())


@pytest.mark.parametrize("wrong", [{"patience": "soon"}, {"patience": -1}])
def test_a_wrong_option_is_a_config_error(kind, wrong):
    with pytest.raises(ConfigError, match="patience"):
        kind("http://127.0.0.1", **wrong)


def test_without_httpx_the_error_says_what_to_install(kind, monkeypatch):
    for name in ("httpx2", "httpx"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"pip install 'tenure\[client\]'"):
        kind("http://127.0.0.1")


async def test_httpx_is_used_where_httpx2_is_missing(kind, monkeypatch, server):
    monkeypatch.setitem(sys.modules, "httpx", httpx2)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    client = kind(server.url, transport=Network(ReplyLost()), clock=HurriedClock())
    assert await got((await got(client.submit("/reports", {"size": 1}, wait=20))).result()) == {
        "pages": "x"
    }
    await got(client.close())


def test_a_worker_without_httpx_imports_all_of_it():
    code = "import sys; sys.modules |= dict(httpx=None, httpx2=None); import tenure.http"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
