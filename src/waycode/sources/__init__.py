"""Sources of scenes. Each converts raw data to `Scene` and passes `check_source`.

`waycode.sources.womd`, `gpudrive`, `nuplan`, `argoverse2` and `sumo` are imported at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from waycode.sources.base import Source, SourceError, SourceReport, check_source, convert

if TYPE_CHECKING:
    from waycode.sources import argoverse2 as argoverse2
    from waycode.sources import gpudrive as gpudrive
    from waycode.sources import nuplan as nuplan
    from waycode.sources import sumo as sumo
    from waycode.sources import womd as womd

_SOURCES = ("argoverse2", "gpudrive", "nuplan", "sumo", "womd")
__all__ = ["Source", "SourceError", "SourceReport", "check_source", "convert"]


def __getattr__(name: str) -> Any:
    if name in _SOURCES:
        return import_module(f"waycode.sources.{name}")
    raise AttributeError(f"waycode.sources has no {name!r}; available: {', '.join([*_SOURCES, *__all__])}")
