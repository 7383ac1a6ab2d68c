"""Writes requirements-dev.lock from pip's report: every package of the development environment, with its hash.

Run it by `make lock`. pip resolves for the machine that it runs on: the lock is for its platform and Python.
"""

import json
import sys
from pathlib import Path
from typing import Any

_HEADER = """\
# The development environment with hashes, for {platform} and CPython {python}. Written by `make lock`.
# Install with: pip install --require-hashes -r requirements-dev.lock && pip install --no-deps --editable .
# A version that ends in +cpu is torch's build without CUDA, which comes from PyTorch's own index.
"""


def lock_of(report: dict[str, Any]) -> str:
    """The lock file of a report of `pip install --report`."""
    machine = report["environment"]
    lines = [
        f"{item['metadata']['name'].lower().replace('_', '-')}=={item['metadata']['version']} "
        f"--hash=sha256:{item['download_info']['archive_info']['hashes']['sha256']}"
        for item in report["install"]
        if item["metadata"]["name"] != "waycode"
    ]
    platform = f"{machine['platform_system']} {machine['platform_machine']}"
    header = _HEADER.format(platform=platform, python=machine["python_version"])
    return header + "\n".join(sorted(lines)) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(lock_of(json.loads(Path(sys.argv[1]).read_text())))
