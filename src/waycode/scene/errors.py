"""The errors that are a user's to mend; the command line prints them as one sentence and exits with 2."""


class WaycodeError(Exception):
    """Says what was got, what was expected and what is available."""


class DatasetError(WaycodeError):
    """A dataset that cannot be read, or cannot be written where it was asked for."""
