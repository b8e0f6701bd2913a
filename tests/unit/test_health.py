"""The health socket: it answers, it makes room, and it removes only what is its own."""

import asyncio
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import ConfigError
from tenure.supervisor.health import ask_health, serve_health


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "health"


def found_at(path: Path) -> str:
    """Return what is there: "socket", "file", "folder" or "nothing"."""
    kinds = {"socket": path.is_socket, "file": path.is_file, "folder": path.is_dir}
    return next((kind for kind, fits in kinds.items() if fits()), "nothing")


def make(kind: str, path: Path) -> None:
    path.write_text("precious") if kind == "file" else path.mkdir()


async def read_health(path: Path, patience: float = 5.0) -> dict[str, Any]:
    return await asyncio.to_thread(ask_health, path, patience)


async def test_each_client_gets_the_current_state(path: Path):
    numbers = iter(range(1000))
    async with serve_health(path, lambda: {"number": next(numbers), "text": "x" * 200_000}):
        answers = await asyncio.gather(*(read_health(path) for _ in range(5)))
    assert sorted(answer["number"] for answer in answers) == [0, 1, 2, 3, 4]
    assert {len(answer["text"]) for answer in answers} == {200_000}


async def test_the_socket_goes_with_its_owner(path: Path):
    async with serve_health(path, dict):
        assert found_at(path) == "socket"
    assert found_at(path) == "nothing"
    with pytest.raises(FileNotFoundError):
        await read_health(path)


async def test_a_client_that_hangs_up_early_disturbs_no_other(path: Path):
    async with serve_health(path, lambda: {"text": "x" * 1_000_000}):
        for _ in range(3):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(os.fspath(path))
        assert len((await read_health(path))["text"]) == 1_000_000


async def test_a_socket_that_a_dead_one_left_is_replaced(path: Path):
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(os.fspath(path))
    assert found_at(path) == "socket"
    async with serve_health(path, lambda: {"alive": True}):
        assert await read_health(path) == {"alive": True}


async def test_where_another_one_answers_there_is_no_room(path: Path):
    async with serve_health(path, lambda: {"mine": True}):
        with pytest.raises(ConfigError, match="another supervisor answers"):
            async with serve_health(path, dict):
                pass
        assert await read_health(path) == {"mine": True}


@pytest.mark.parametrize("kind", ["file", "folder"])
async def test_a_file_that_is_no_socket_stays(path: Path, kind: str):
    make(kind, path)
    with pytest.raises(ConfigError, match="is no socket"):
        async with serve_health(path, dict):
            pass
    assert found_at(path) == kind


async def test_a_socket_that_took_its_place_stays(path: Path):
    with closing(socket.socket(socket.AF_UNIX)) as other:
        async with serve_health(path, dict):
            os.unlink(path)  # noqa: PTH108 - as another process would
            other.bind(os.fspath(path))
        assert found_at(path) == "socket"


async def test_a_path_that_is_too_long_is_reported(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be made"):
        async with serve_health(tmp_path / ("x" * 200), dict):
            pass
    with pytest.raises(OSError, match="too long"):
        await read_health(tmp_path / ("x" * 200))


async def test_silence_ends_with_a_time_out(path: Path):
    with closing(socket.socket(socket.AF_UNIX)) as mute:
        mute.bind(os.fspath(path))
        mute.listen()
        with pytest.raises(TimeoutError):
            await read_health(path, 0.05)
