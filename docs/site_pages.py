"""Pages of the site that are not Markdown files of docs/: the notebooks, and three pages of the repository's root.

mkdocs calls these functions (`hooks` in mkdocs.yml). Links are written for the view of the repository, where a notebook
ends in .ipynb and CONTRIBUTING.md lies above docs/; here they are turned into those of the site.
"""

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROOT_PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
_INTO_DOCS = re.compile(r"(\]\()docs/")
_ABOVE_DOCS = re.compile(rf"(\]\()(?:\.\./)+({'|'.join(map(re.escape, ROOT_PAGES))})")
_NOTEBOOK = re.compile(r"(\]\([^)\s]*)\.ipynb\)")


def markdown_of(notebook: Path) -> str:
    """The cells of a notebook as a page; outputs are left out."""
    cells = json.loads(notebook.read_text())["cells"]
    shown = []
    for cell in cells:
        text = "".join(cell["source"])
        shown.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(shown) + "\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    for name in ROOT_PAGES:
        files.append(File.generated(config, name, content=_INTO_DOCS.sub(r"\1", (ROOT / name).read_text())))
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=markdown_of(notebook)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turns links of the repository into those of the site."""
    return _NOTEBOOK.sub(r"\1.md)", _ABOVE_DOCS.sub(r"\1\2", markdown))
