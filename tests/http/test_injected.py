"""Parameters that a framework injects beside the request's values make no sense in a worker."""

import pytest
from fastapi import BackgroundTasks, Request, Response, UploadFile

from tenure import ConfigError, Tenure
from tenure.http import AsyncRouter


@pytest.mark.parametrize("kind", [Request, Response, BackgroundTasks, UploadFile])
def test_parameters_that_only_a_framework_can_fill_are_refused(kind: type):
    router = AsyncRouter(Tenure("memory://"), prefix="/reports", owner=lambda: "ada")

    async def build(value) -> None: ...

    build.__annotations__["value"] = kind
    with pytest.raises(ConfigError, match=f"'value' .* declared with {kind.__name__}, .* worker"):
        router.post("")(build)
