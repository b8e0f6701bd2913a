"""The wheel and the source archive hold the package and its metadata."""

import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path, PurePosixPath

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
SOURCES = {
    str(path.relative_to(ROOT / "src"))
    for path in (ROOT / "src").rglob("*")
    if path.is_file() and path.suffix != ".pyc"
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Builds both archives and returns the files in each."""
    folder = tmp_path_factory.mktemp("dist")
    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    [sdist] = SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(sdist) as archive:
        in_sdist = {
            str(PurePosixPath(*PurePosixPath(member.name).parts[1:])): file.read()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }
    return {"wheel": in_wheel, "sdist": in_sdist}


def metadata(files: dict[str, bytes]) -> Message:
    [name] = [name for name in files if PurePosixPath(name).name in {"METADATA", "PKG-INFO"}]
    return message_from_string(files[name].decode())


def test_the_wheel_holds_the_package_and_its_metadata(built: dict[str, dict[str, bytes]]):
    files = built["wheel"]
    extra = {name for name in files if ".dist-info/" not in name} - SOURCES
    assert not extra
    assert set(files) > SOURCES


def test_the_source_archive_holds_what_builds_the_wheel(built: dict[str, dict[str, bytes]]):
    about = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert set(built["sdist"]) == {f"src/{name}" for name in SOURCES} | about


@pytest.mark.parametrize("archive", ["wheel", "sdist"])
def test_no_archive_holds_the_simulator_or_other_tests(
    built: dict[str, dict[str, bytes]], archive: str
):
    parts = {part for name in built[archive] for part in PurePosixPath(name).parts}
    assert not parts & {"sim", "tests"}
    assert not [name for name, data in built[archive].items() if b"import tests" in data]
    assert not [name for name, data in built[archive].items() if b"from tests" in data]


@pytest.mark.parametrize("archive", ["wheel", "sdist"])
def test_no_archive_holds_a_private_key(built: dict[str, dict[str, bytes]], archive: str):
    assert not [name for name, data in built[archive].items() if b"PRIVATE KEY" in data]


@pytest.mark.parametrize("archive", ["wheel", "sdist"])
def test_the_metadata_describes_the_project(built: dict[str, dict[str, bytes]], archive: str):
    about = metadata(built[archive])
    assert about["Name"] == "tenure"
    assert about["Summary"]
    assert about["Description-Content-Type"] == "text/markdown"
    assert about.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
