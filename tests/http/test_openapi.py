"""The document is valid and complete, and requests made from it get documented answers."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import CHECKS, load_all_checks

from tenure import Tenure
from tenure.http import AsyncRouter, Limits
from tests.http.service import Service
from tests.rig.sizes import SIZE
from tests.rig.waiting import wait_until

SECONDS = 5.0 if SIZE.name == "short" else 180.0
ANN = {"x-user": "ann"}

load_all_checks()
# Checks that are left out, with the reason:
NOT_FOR_US = {
    # A body-less endpoint ignores a body, a handler may ignore what it was sent, and `Prefer` and
    # `Last-Event-ID` that make no sense are ignored on purpose (RFC 7240, the SSE standard).
    "negative_data_rejection",
    # An id that is well-formed is still not the id of a job: 404.
    "positive_data_acceptance",
    # Authentication belongs to the service: the document of these routes names no scheme.
    "ignored_auth",
    # A cancelled job can still be read: DELETE asks for an end and removes nothing.
    "use_after_free",
    # A limit of a few milliseconds per answer; other tests measure times under load.
    "max_response_time",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with a worker on SQLite, in a thread of its own."""
    folder = tmp_path_factory.mktemp("openapi")
    server = uvicorn.Server(
        uvicorn.Config(
            _make(folder), port=0, log_config=None, lifespan="on", timeout_graceful_shutdown=1
        )
    )
    thread = threading.Thread(target=asyncio.run, args=[server.serve()])
    thread.start()
    wait_until(lambda: server.started, SIZE.patience)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def _make(folder: Path) -> FastAPI:
    app = Tenure(f"sqlite:///{folder / 'tenure.db'}", grace=0)
    service = Service(app, max_wait=0.05, limits=Limits(per_minute=200))
    service.stage.go.set()

    @service.router.post("/dear", idempotency="required")
    async def dear(body: dict[str, int]) -> dict[str, int]:
        return body

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with app, app.worker():
            yield

    api = FastAPI(lifespan=lifespan)
    api.include_router(service.router.router)
    return api


@pytest.fixture(scope="module")
def schema(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


def test_the_document_is_valid(schema: Any):
    schema.validate()


def test_the_document_describes_every_operation(schema: Any):
    document = schema.raw_schema
    paths = document["paths"]
    submit = paths["/reports"]["post"]
    assert set(submit["responses"]) >= {"200", "202", "400", "413", "415", "422", "429", "503"}
    accepted = submit["responses"]["202"]
    assert set(accepted["headers"]) >= {"Location", "Retry-After", "Idempotency-Replayed"}
    for name, header in accepted["headers"].items():
        kind = "integer" if name == "Retry-After" else "string"
        assert header["schema"]["type"] in {kind, "boolean"}, name
        assert header["description"]
    [link] = accepted["links"].values()
    operations = {
        operation["operationId"]: operation
        for path in paths.values()
        for operation in path.values()
    }
    assert len(operations) == sum(map(len, paths.values()))
    assert link["operationId"] in operations
    names = {parameter["name"]: parameter for parameter in submit["parameters"]}
    assert {"Idempotency-Key", "Prefer", "loud"} <= set(names)
    assert not names["Idempotency-Key"].get("required")
    dear = {
        parameter["name"]: parameter for parameter in paths["/reports/dear"]["post"]["parameters"]
    }
    assert dear["Idempotency-Key"]["required"]
    job = paths["/reports/jobs/{job_id}"]
    assert set(job["get"]["responses"]) >= {"200", "304", "404", "503"}
    assert set(job["delete"]["responses"]) >= {"200", "202", "404", "503"}
    result = paths["/reports/jobs/{job_id}/result"]["get"]
    assert set(result["responses"]) >= {"200", "404", "406", "409", "410", "500", "503", "504"}
    events = paths["/reports/jobs/{job_id}/events"]["get"]["responses"]
    assert "text/event-stream" in events["200"]["content"]
    assert "204" in events
    assert "text/csv" in paths["/reports/years/{year}"]["delete"]["responses"]["200"]["content"]
    assert not any("tenure_" in name for name in str(document).split("'"))
    assert not any("{rest" in path for path in paths)
    shown = accepted["content"]["application/json"]["schema"]
    assert "Report" in str(shown)


@pytest.fixture(scope="module")
def ids(url: str) -> list[str]:
    """Jobs that have ended in every way."""
    made = []
    with httpx2.Client(base_url=url, headers=ANN) as client:
        ends = ("failing", "refusing", "timing-out", "slow", "slow?steps=50")
        made += [client.post(f"/reports/{path}").json()["id"] for path in ends]
        made.append(client.delete("/reports/years/2020").json()["id"])
        made.append(client.post("/reports/slow?steps=200000").json()["id"])
        client.delete(f"/reports/jobs/{made[-1]}")

        def are_over() -> bool:
            listed = client.get("/reports/jobs").json()["jobs"]
            return sum(job["finished"] is not None for job in listed) == len(made)

        wait_until(are_over, SIZE.patience)
    return made


def checks(path: str) -> list[Any]:
    left_out = set(NOT_FOR_US)
    if path.endswith("/result"):
        # The status of a result shows how its job failed, and 500 is one of them.
        left_out.add("not_a_server_error")
    return [check for check in CHECKS.get_all() if check.__name__ not in left_out]


# The server thread uses the same random numbers; Hypothesis blames a strategy for that.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
def test_requests_made_from_the_document_find_no_fault(schema: Any, ids: list[str]):
    """Every operation with values that fit and that do not, until the time is up."""
    operations = [operation.ok() for operation in schema.get_all_operations()]
    assert len(operations) >= 15
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    until = time.monotonic() + SECONDS
    for turn in itertools.count():
        for operation, mode in itertools.product(operations, modes):
            _try(operation, mode, turn)
            if "{job_id}" in operation.path and mode is modes[0]:
                for id_ in ids:
                    _try(operation, mode, turn, path_parameters={"job_id": id_})
            if turn > 0 and time.monotonic() > until:
                return


def _try(operation: Any, mode: Any, turn: int, **fixed: Any) -> None:
    """Ask a few times; Hypothesis could not be stopped in the middle of many."""

    @seed(turn)
    @settings(
        max_examples=1 if fixed else 3,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode, **fixed))
    def ask(case: Any) -> None:
        answer = case.call(headers=ANN, timeout=20)
        case.validate_response(answer, checks=checks(operation.path))

    ask()


@pytest.mark.parametrize("key", ["off", "optional", "required"])
@pytest.mark.parametrize("limits", [None, Limits(per_minute=2)])
@pytest.mark.parametrize("max_wait", [0, 5])
def test_the_answers_of_an_endpoint_follow_from_its_options(key: Any, limits: Any, max_wait: int):
    options = {} if key == "optional" else {"idempotency": key}
    router = AsyncRouter(Tenure("memory://"), owner=lambda: "ann", limits=limits)

    @router.post("/all", max_wait=max_wait, **options)
    async def work(number: int) -> int:
        return number

    api = FastAPI()
    api.include_router(router.router)
    submit = api.openapi()["paths"]["/all"]["post"]
    documented = {
        "200": max_wait > 0,
        "202": True,
        "403": True,
        "410": key != "off",
        "415": False,
        "422": True,
        "429": limits is not None,
        "503": True,
    }
    assert {status: status in submit["responses"] for status in documented} == documented
    headers = {each["name"]: each.get("required", False) for each in submit["parameters"]}
    headers.pop("number")
    expected = {"Prefer": False} if max_wait else {}
    expected |= {} if key == "off" else {"Idempotency-Key": key == "required"}
    assert headers == expected
