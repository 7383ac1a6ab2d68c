"""The page in the package is what its source builds, and the source passes its own tests."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, BUILT = ROOT / "studio", ROOT / "src" / "waycode" / "studio" / "page"
NOT_SOURCE = ("node_modules", "dist")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source with the packages of its lock file, in a folder of its own: nothing of a developer's is used."""
    if shutil.which("npm") is None:
        pytest.skip("node is not installed: the page in the package cannot be built again")
    folder = tmp_path_factory.mktemp("bundle") / "studio"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    installed = npm(folder, "ci")
    assert "EUSAGE" not in installed.stderr, f"the lock file is not that of package.json: {installed.stderr[-600:]}"
    if installed.returncode != 0 and "CI" not in os.environ:
        pytest.skip(f"npm ci failed, possibly without a network: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stderr
    return folder


def npm(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([shutil.which("npm") or "npm", *arguments], cwd=folder, capture_output=True, text=True)


def test_the_shipped_page_is_what_the_source_builds(copy: Path) -> None:
    built = npm(copy, "run", "build", "--", "--outDir", "page")
    assert built.returncode == 0, built.stdout + built.stderr
    names = sorted(path.name for path in BUILT.iterdir())
    assert sorted(path.name for path in (copy / "page").iterdir()) == names
    for name in names:
        same = (copy / "page" / name).read_bytes() == (BUILT / name).read_bytes()
        assert same, f"{name} differs: run `npm ci && npm run build` in studio/ and commit the result"


def test_the_source_passes_its_own_tests(copy: Path) -> None:
    tested = npm(copy, "test")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_types_are_those_of_the_schema(copy: Path) -> None:
    made = npm(copy, "run", "types")
    assert made.returncode == 0, made.stdout + made.stderr
    assert (copy / "src" / "schema.ts").read_text() == (SOURCE / "src" / "schema.ts").read_text()
