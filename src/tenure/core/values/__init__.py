"""How values of users become JSON, come back, and are checked."""

from typing import Any

from tenure.core.values.json import use_pydantic


def _pydantic_forms() -> Any:
    from tenure.core.values import pydantic_forms  # noqa: PLC0415 - Pydantic may not be installed

    return pydantic_forms


use_pydantic(_pydantic_forms)
