"""The world around the ego, one step at a time; `ReplayTraffic` is the log, whatever the ego does (non-reactive).

Axes: A other road users, G signalled lanes.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int8

from waycode.driving import Vehicle, VehicleState
from waycode.scene import Scene

State = TypeVar("State")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The other road users and the lights at one step. An id may be new, or be gone again later."""

    ids: tuple[str, ...]
    types: Int8[np.ndarray, " A"]  # TrackType
    length_m: Float[np.ndarray, " A"]
    width_m: Float[np.ndarray, " A"]
    position_m: Float[np.ndarray, "A 2"]
    heading_rad: Float[np.ndarray, " A"]
    velocity_mps: Float[np.ndarray, "A 2"]
    valid: Bool[np.ndarray, " A"]
    signal_states: Int8[np.ndarray, " G"]  # of the scene's signals, in their order
    signal_valid: Bool[np.ndarray, " G"]


@runtime_checkable
class Traffic(Protocol[State]):
    """Moves the others. What changes is in the state that it returns, so that a run can be repeated or branched."""

    def reset(self, scene: Scene) -> State:
        """The world at the scene's current step."""

    def step(self, state: State, ego: VehicleState, *, vehicle: Vehicle) -> tuple[State, Snapshot]:
        """The world one step later, for an ego that has already moved to where it is then."""


@dataclass(frozen=True, kw_only=True)
class ReplayState:
    """Where in the log we are."""

    scene: Scene
    step: int
    ids: tuple[str, ...]  # of the others


@dataclass(frozen=True, kw_only=True)
class ReplayTraffic:
    """The others do what they did in the log."""

    def reset(self, scene: Scene) -> ReplayState:
        return ReplayState(scene=scene, step=scene.current_step, ids=_other_ids(scene))

    def step(self, state: ReplayState, ego: VehicleState, *, vehicle: Vehicle) -> tuple[ReplayState, Snapshot]:
        after = ReplayState(scene=state.scene, step=state.step + 1, ids=state.ids)
        return after, recorded_snapshot(after.scene, after.step, ids=after.ids)


def recorded_snapshot(scene: Scene, step: int, *, ids: tuple[str, ...] | None = None) -> Snapshot:
    """What the log says of a step."""
    tracks, signals = scene.tracks, scene.signals
    keep = np.arange(len(tracks)) != tracks.ego_index
    return Snapshot(
        ids=_other_ids(scene) if ids is None else ids,
        types=tracks.types[keep],
        length_m=tracks.length_m[keep],
        width_m=tracks.width_m[keep],
        position_m=np.stack([tracks.x_m[keep, step], tracks.y_m[keep, step]], axis=-1),
        heading_rad=tracks.heading_rad[keep, step],
        velocity_mps=np.stack([tracks.vx_mps[keep, step], tracks.vy_mps[keep, step]], axis=-1),
        valid=tracks.valid[keep, step],
        signal_states=signals.states[:, step] if len(signals) else np.zeros(0, np.int8),
        signal_valid=signals.valid[:, step] if len(signals) else np.zeros(0, np.bool_),
    )


def _other_ids(scene: Scene) -> tuple[str, ...]:
    return tuple(name for index, name in enumerate(scene.tracks.ids) if index != scene.tracks.ego_index)
