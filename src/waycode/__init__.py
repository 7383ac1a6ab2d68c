"""Waycode plans motion by searching a compressed code of the way ahead.

What is named here is imported when it is first used: `import waycode` itself is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waycode import sources as sources
    from waycode.scene import Scene as Scene
    from waycode.scene import WaycodeError as WaycodeError
    from waycode.scene.dataset import Dataset as Dataset
    from waycode.scene.dataset import load_scene as load_scene
    from waycode.scene.dataset import save_scene as save_scene

__version__ = "0.1.0"

_HOME = {
    "Dataset": "waycode.scene.dataset",
    "Scene": "waycode.scene",
    "WaycodeError": "waycode.scene",
    "load_scene": "waycode.scene.dataset",
    "save_scene": "waycode.scene.dataset",
}
__all__ = ["Dataset", "Scene", "WaycodeError", "load_scene", "save_scene", "sources"]


def __getattr__(name: str) -> Any:
    if name == "sources":
        return import_module("waycode.sources")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"waycode has no {name!r}; available: {', '.join(__all__)}")
