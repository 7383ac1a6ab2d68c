"""The error of this room, in a module of its own: SUMO's process imports it without the simulation."""

from waycode.scene import WaycodeError


class SimulationError(WaycodeError):
    """A scene that cannot be simulated or scored."""
