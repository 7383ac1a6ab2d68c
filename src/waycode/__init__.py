"""Waycode plans motion by searching a compressed code of the way ahead.

    scene = waycode.load_scene("scene.parquet")
    planner = waycode.Planner.from_pretrained("sumo-small")
    view = planner.encode(scene)  # once
    plan = view.plan(waycode.objectives.LeftTurn())  # often, and cheap

Axis letters, the same in all modules: B scenes, A agents, K candidates, T steps, n tokens, D dimensions of a token,
M cost levels, L lanes, P points. Names are imported on first use, so that `import waycode` itself is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from waycode import objectives as objectives
    from waycode import sources as sources
    from waycode.dataset.dataset import Dataset as Dataset
    from waycode.dataset.dataset import load_scene as load_scene
    from waycode.dataset.dataset import save_scene as save_scene
    from waycode.objectives import Candidates as Candidates
    from waycode.planner import Plan as Plan
    from waycode.planner import Planner as Planner
    from waycode.planner import PlanStatus as PlanStatus
    from waycode.planner import View as View
    from waycode.scene import Scene as Scene
    from waycode.scene import WaycodeError as WaycodeError
    from waycode.scene.lane_graph import LaneGraph as LaneGraph
    from waycode.simulation.rollout import score as score
    from waycode.simulation.rollout import simulate as simulate

__version__ = "0.1.0"

_HOME = {
    "Candidates": "waycode.objectives",
    "Dataset": "waycode.dataset.dataset",
    "LaneGraph": "waycode.scene.lane_graph",
    "Plan": "waycode.planner",
    "PlanStatus": "waycode.planner",
    "Planner": "waycode.planner",
    "Scene": "waycode.scene",
    "View": "waycode.planner",
    "WaycodeError": "waycode.scene",
    "load_scene": "waycode.dataset.dataset",
    "save_scene": "waycode.dataset.dataset",
    "score": "waycode.simulation.rollout",
    "simulate": "waycode.simulation.rollout",
}
_ROOMS = ("objectives", "sources")
__all__ = [
    "Candidates",
    "Dataset",
    "LaneGraph",
    "Plan",
    "PlanStatus",
    "Planner",
    "Scene",
    "View",
    "WaycodeError",
    "load_scene",
    "objectives",
    "save_scene",
    "score",
    "simulate",
    "sources",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"waycode.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"waycode has no {name!r}; available: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
