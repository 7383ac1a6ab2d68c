"""`docs/api.md` is what `docs/api_reference.py` makes of the source: a changed signature shows in review."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_api_reference_is_that_of_the_source() -> None:
    # In a process of its own: under pytest, functions are wrapped to check their types.
    program = "import sys, api_reference; sys.stdout.write(api_reference.reference())"
    made = subprocess.run([sys.executable, "-c", program], cwd=DOCS, capture_output=True, text=True, check=True)
    assert made.stdout == (DOCS / "api.md").read_text(), "run: python docs/api_reference.py"
