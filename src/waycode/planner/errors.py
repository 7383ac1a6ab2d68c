"""What a planner cannot be asked for."""

from waycode.scene import WaycodeError


class PlannerError(WaycodeError, ValueError):
    """A scene, a road user, a code or a setting that cannot be planned with."""
