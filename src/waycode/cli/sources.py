"""Which sources `waycode data convert` knows, and how each is opened."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waycode.cli.data import SourceName
from waycode.scene import WaycodeError
from waycode.sources.base import Source


class ConvertError(WaycodeError):
    """Options of `waycode data convert` that do not fit the source."""


@dataclass(frozen=True, kw_only=True)
class NuplanOptions:
    """Options that nuPlan alone has."""

    maps: Path | None = None
    scenario_types: tuple[str, ...] = ()
    future_s: float | None = None
    every_s: float | None = None

    def given(self) -> dict[str, Any]:
        """The options that are set, by name."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}

    def as_settings(self) -> dict[str, Any]:
        """What is kept in the dataset's settings."""
        return {
            name: str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
            for name, value in self.given().items()
        }


def open_source(name: SourceName, paths: tuple[Path, ...], options: NuplanOptions) -> Source:
    """The named source over files and folders; only its own module, and what that needs, is imported."""
    if not paths:
        raise ConvertError(f"no raw data was named: expected files or folders of {name}")
    for path in paths:
        if not path.exists():
            raise ConvertError(f"{path} does not exist: expected a file or folder of {name}")
    if name == "nuplan":
        return _nuplan(paths, options)
    if options.given():
        misplaced = ", ".join(f"--{option.replace('_', '-')}" for option in options.given())
        raise ConvertError(f"{misplaced} goes with --from nuplan only, got --from {name}")
    if name == "womd":
        from waycode.sources.womd import WomdSource

        return WomdSource(paths)
    if name == "gpudrive":
        from waycode.sources.gpudrive import GpuDriveSource

        return GpuDriveSource(paths)
    from waycode.sources.argoverse2 import Argoverse2Source

    return Argoverse2Source(paths)


def _nuplan(paths: tuple[Path, ...], options: NuplanOptions) -> Source:
    if options.maps is None:
        raise ConvertError("nuplan needs --maps, the folder of its maps, got none")
    if not options.maps.is_dir():
        raise ConvertError(f"--maps is {options.maps}, expected a folder that exists")
    from waycode.sources.nuplan import NuplanSource

    chosen = {name: value for name, value in options.given().items() if name != "maps"}
    return NuplanSource(paths, options.maps, **chosen)
