"""What goes wrong with objectives, as errors that are a user's to mend."""

from waycode.scene import WaycodeError


class ObjectiveError(WaycodeError, ValueError):
    """An objective that does not fit the scene or the candidates, or that cannot be read from text."""
