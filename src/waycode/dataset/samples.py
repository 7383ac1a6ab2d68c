"""The scenes that come with the package."""

from importlib.resources import files
from pathlib import Path

SAMPLES = {"sample": "sumo", "sample-crossings": "sumo-crossings"}  # name wherever a dataset is meant -> its folder


def sample_folder(name: str | Path) -> Path | None:
    """The folder of bundled scenes; None if the name is not one of `SAMPLES`, or if a folder or file has that name."""
    if str(name) not in SAMPLES or Path(name).exists():
        return None
    return bundled_folder(SAMPLES[str(name)])


def bundled_folder(name: str) -> Path:
    """The folder of a dataset that comes with the package, by the name that it has there."""
    return Path(str(files("waycode"))) / "samples" / name
