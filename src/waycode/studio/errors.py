"""Errors of the studio, and what a client is told of them."""

from typing import Literal

from waycode.scene import WaycodeError

ProblemKind = Literal["not-found", "bad-request", "busy", "failed"]


class StudioError(WaycodeError):
    """Datasets or a model that the studio cannot open."""


class NotFoundError(WaycodeError):
    """A dataset, a scene or a drive that the studio does not have."""


class BusyError(WaycodeError):
    """More requests or drives wait than the studio accepts."""


class RequestError(WaycodeError):
    """A request that failed in another process, with the kind of problem that the client is told."""

    def __init__(self, kind: ProblemKind, message: str):
        super().__init__(message)
        self.kind: ProblemKind = kind


def kind_of(error: WaycodeError) -> ProblemKind:
    """The kind of problem that an error is."""
    if isinstance(error, RequestError):
        return error.kind
    if isinstance(error, NotFoundError):
        return "not-found"
    return "busy" if isinstance(error, BusyError) else "bad-request"
