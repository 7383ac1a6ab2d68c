"""What can go wrong before a simulation starts."""

from waycode.scene import WaycodeError


class SimulationError(WaycodeError):
    """A scene that cannot be driven."""
