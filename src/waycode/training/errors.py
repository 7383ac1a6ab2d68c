"""What can be wrong with a run."""

from waycode.scene import WaycodeError


class TrainingError(WaycodeError):
    """A run that cannot be started or resumed."""


class RunStopped(Exception):  # noqa: N818 (nothing went wrong: the user asked for it)
    """The run was asked to stop, and has kept everything up to this step."""

    def __init__(self, step: int):
        self.step = step
        super().__init__(f"the run was stopped after step {step}")
