"""Waycode inside nuPlan's own simulator: a planner for nuplan-devkit (see docs/nuplan.md).

The devkit is imported on the first access to `WaycodePlanner`, so that everything else works without it.
"""

from typing import TYPE_CHECKING, Any

from waycode.simulation.errors import SimulationError

if TYPE_CHECKING:
    from waycode.simulation.nuplan.planner import WaycodePlanner

__all__ = ["WaycodePlanner"]


def __getattr__(name: str) -> Any:
    if name != "WaycodePlanner":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has WaycodePlanner")
    try:
        from waycode.simulation.nuplan.planner import WaycodePlanner
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "nuplan":
            raise
        raise SimulationError(
            f"WaycodePlanner needs nuplan-devkit, and Python does not find {error.name}: install it from "
            "https://github.com/motional/nuplan-devkit (it is not on PyPI)"
        ) from error
    return WaycodePlanner
