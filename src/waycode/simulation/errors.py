"""`SimulationError`, in a module of its own: SUMO's process imports it without the rest of the simulation."""

from waycode.scene import Scene, WaycodeError


class SimulationError(WaycodeError):
    """A scene that cannot be simulated or scored."""


def require_ego(scene: Scene) -> int:
    """Index of the ego's track; raises `SimulationError` for a scene without an ego."""
    if scene.tracks.ego_index is None:
        raise SimulationError(f"scene {scene.id!r} has no ego: a simulation needs one")
    return scene.tracks.ego_index
