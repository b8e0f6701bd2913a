import pytest

from tenure import Tenure
from tenure.errors import ConfigError
from tenure.stores import connect as connecting
from tenure.stores.connect import connect
from tenure.stores.memory import MemoryStore
from tenure.testing import ManualClock


def test_a_url_names_a_store():
    clock = ManualClock()
    store = connect("memory://shared", namespace="app", clock=clock)
    assert isinstance(store, MemoryStore)
    assert (store.url, store.namespace) == ("memory://shared", "app")
    assert store.clock is clock


@pytest.mark.parametrize(
    "url",
    ["", "tenure.db", "mysql://host/db", "://", "memory", "MEMORY://", "http://host", None, 7],
)
def test_a_url_that_names_no_store_is_refused_with_examples(url):
    with pytest.raises(ConfigError, match=r"is not a store URL\. Use sqlite:///file\.db"):
        connect(url, namespace="app", clock=ManualClock())


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("postgresql+asyncpg://ann:secret@host/db", r"Drop '\+asyncpg'.* Write postgresql://"),
        ("postgresql+psycopg://host/db", r"Drop '\+psycopg'"),
        ("postgres+psycopg2://host/db", r"Drop '\+psycopg2'.* Write postgres://"),
        ("sqlite+aiosqlite:///a.db", r"Drop '\+aiosqlite'.* Write sqlite://"),
        (
            "redis+aioredis://host",
            r"Drop '\+aioredis', or use redis\+sentinel:// or redis\+cluster",
        ),
        ("mysql+aiomysql://host", r"Use sqlite:///file\.db"),
    ],
)
def test_the_error_for_a_driver_in_a_url_says_to_drop_it(url: str, advice: str):
    with pytest.raises(ConfigError, match=advice) as refused:
        connect(url, namespace="app", clock=ManualClock())
    assert "secret" not in str(refused.value)


def test_a_wrong_namespace_is_refused():
    with pytest.raises(ConfigError, match="namespace"):
        connect("memory://", namespace="a b", clock=ManualClock())


@pytest.mark.parametrize(
    ("url", "extra"),
    [
        ("redis://host", "redis"),
        ("rediss://host", "redis"),
        ("valkey://host", "redis"),
        ("valkeys://host", "redis"),
        ("redis+sentinel://host/service", "redis"),
        ("valkeys+cluster://host", "redis"),
        ("postgresql://host/db", "postgres"),
        ("postgres://host/db", "postgres"),
    ],
)
def test_a_missing_driver_is_named_by_its_extra(
    monkeypatch: pytest.MonkeyPatch, url: str, extra: str
):
    def no_driver(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}")

    monkeypatch.setattr(connecting, "import_module", no_driver)
    with pytest.raises(ConfigError, match=rf"pip install 'tenure\[{extra}\]'"):
        connect(url, namespace="app", clock=ManualClock())


def test_memory_without_a_name_is_private_and_with_one_shared():
    def world(url: str) -> object:
        store = connect(url, namespace="app", clock=ManualClock())
        assert isinstance(store, MemoryStore)
        return store._database

    assert world("memory://") is not world("memory://")
    assert world("memory://one") is world("memory://one")
    assert world("memory://one") is not world("memory://two")


def test_a_refusal_does_not_show_the_password():
    with pytest.raises(ConfigError) as caught:
        connect("mysql://user:secret@host/db", namespace="app", clock=ManualClock())
    assert "secret" not in str(caught.value)
    assert "mysql://user:***@host/db" in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "redis://host/x?db=y"])
def test_a_wrong_url_says_where_it_came_from(monkeypatch: pytest.MonkeyPatch, url: str):
    with pytest.raises(ConfigError, match=r"^url: "):
        Tenure(url)
    monkeypatch.setenv("TENURE_URL", url)
    with pytest.raises(ConfigError, match=r"^TENURE_URL: "):
        Tenure()
    monkeypatch.setenv("TENURE_URL", "")
    assert Tenure().url == "sqlite:///tenure.db"
