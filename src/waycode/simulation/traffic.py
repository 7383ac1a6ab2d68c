"""The interface of traffic, and `ReplayTraffic`, which replays the log whatever the ego does (non-reactive).

Axes: A other road users, G signalled lanes.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int8

from waycode.driving import Vehicle, VehicleState
from waycode.scene import Scene

TrafficState = TypeVar("TrafficState")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The other road users and the traffic lights at one step."""

    ids: tuple[str, ...]  # may differ from step to step
    types: Int8[np.ndarray, " A"]  # TrackType
    length_m: Float[np.ndarray, " A"]
    width_m: Float[np.ndarray, " A"]
    position_m: Float[np.ndarray, "A 2"]  # centre of the box
    heading_rad: Float[np.ndarray, " A"]
    velocity_mps: Float[np.ndarray, "A 2"]
    valid: Bool[np.ndarray, " A"]  # False: not in the world at this step
    signal_states: Int8[np.ndarray, " G"]  # SignalState, in the order of the scene's signals
    signal_valid: Bool[np.ndarray, " G"]


@runtime_checkable
class Traffic(Protocol[TrafficState]):
    """Moves the other road users. All that changes is in the returned state, so a run can be repeated or branched."""

    def reset(self, scene: Scene) -> TrafficState:
        """The state at the scene's current step."""

    def step(self, state: TrafficState, ego: VehicleState, *, vehicle: Vehicle) -> tuple[TrafficState, Snapshot]:
        """The state one step later and its snapshot.

        Args:
            state: as returned by `reset` or by the step before.
            ego: the ego one step later: it moves first.
            vehicle: the ego's size and axles.
        """


@dataclass(frozen=True, kw_only=True)
class ReplayState:
    """A position in the log."""

    scene: Scene
    step: int
    ids: tuple[str, ...]  # of the other road users


@dataclass(frozen=True, kw_only=True)
class ReplayTraffic:
    """The other road users do what they did in the log."""

    def reset(self, scene: Scene) -> ReplayState:
        return ReplayState(scene=scene, step=scene.current_step, ids=_other_ids(scene))

    def step(self, state: ReplayState, ego: VehicleState, *, vehicle: Vehicle) -> tuple[ReplayState, Snapshot]:
        after = ReplayState(scene=state.scene, step=state.step + 1, ids=state.ids)
        return after, recorded_snapshot(after.scene, after.step, ids=after.ids)


def recorded_snapshot(scene: Scene, step: int, *, ids: tuple[str, ...] | None = None) -> Snapshot:
    """The other road users and signals of a recorded step.

    Args:
        scene: the log.
        step: index of the step.
        ids: ids of the other road users, if the caller has them: the recorder is faster with the same tuple object at
            every step.
    """
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
