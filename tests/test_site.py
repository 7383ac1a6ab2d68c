"""The documentation site builds without a warning and loads nothing from elsewhere; links work in the repository."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)


class Loaded(HTMLParser):
    """The addresses of what a page loads by itself: scripts, styles, pictures, fonts; not what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        kind = {"link": "href"}.get(tag, "src")
        if tag in ("script", "link", "img", "iframe", "source", "video") and given.get(kind):
            self.addresses.append(given[kind] or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_and_notebook_is_in_the_site(site: Path) -> None:
    made = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"CONTRIBUTING", "SECURITY", "CHANGELOG"}
    notebooks = {f"notebooks/{path.stem}" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert pages | notebooks <= made
    home = (site / "index.html").read_text()
    assert all(f'href="{one}.html"' in home for one in (pages | notebooks) - {"index"}), "not in the navigation"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(path.read_text())
        assert loaded.addresses, path
        assert [one for one in loaded.addresses if "//" in one] == [], path
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*[\"']?https?:", style.read_text()), style


def anchors(page: Path) -> set[str]:
    """The anchors of a page as a view of the repository makes them from its headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_work_in_the_repository(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = unquote(target).partition("#")
        file = page.parent / name if name else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"
