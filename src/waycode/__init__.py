"""Waycode plans motion by searching a compressed code of the way ahead.

What is named here is imported when it is first used: `import waycode` itself is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waycode import objectives as objectives
    from waycode import sources as sources
    from waycode.dataset.dataset import Dataset as Dataset
    from waycode.dataset.dataset import load_scene as load_scene
    from waycode.dataset.dataset import save_scene as save_scene
    from waycode.planner import Plan as Plan
    from waycode.planner import Planner as Planner
    from waycode.scene import Scene as Scene
    from waycode.scene import WaycodeError as WaycodeError

__version__ = "0.1.0"

_HOME = {
    "Dataset": "waycode.dataset.dataset",
    "Plan": "waycode.planner",
    "Planner": "waycode.planner",
    "Scene": "waycode.scene",
    "WaycodeError": "waycode.scene",
    "load_scene": "waycode.dataset.dataset",
    "save_scene": "waycode.dataset.dataset",
}
_ROOMS = ("objectives", "sources")
__all__ = [
    "Dataset",
    "Plan",
    "Planner",
    "Scene",
    "WaycodeError",
    "load_scene",
    "objectives",
    "save_scene",
    "sources",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"waycode.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"waycode has no {name!r}; available: {', '.join(__all__)}")
